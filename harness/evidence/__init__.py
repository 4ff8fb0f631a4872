"""What was measured, kept: Records by the hash of their settings, verified when read, whole or absent."""

from .journal import Journal
from .record import Record, canonical_json, key
from .store import Store

__all__ = ["Journal", "Record", "Store", "canonical_json", "key"]

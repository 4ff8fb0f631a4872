"""Errors that a user is meant to read: one line that says what was wrong, with what, and what to do."""

from __future__ import annotations


class WanamakerError(Exception):
    """Base of every error that is reported as one line rather than as a traceback."""


class ModelError(WanamakerError):
    """A model cannot be found, read or measured."""


class CorpusError(WanamakerError):
    """A corpus cannot be found, read or split."""


class EvidenceError(WanamakerError):
    """The evidence store cannot be read or written."""


class MeasurementError(WanamakerError):
    """A measurement broke: the numbers are not to be used (for instance non-finite logits)."""


class ReportError(WanamakerError):
    """A report or baseline cannot be read, or does not fit this run."""

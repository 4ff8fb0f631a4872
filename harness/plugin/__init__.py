"""The pytest plugin: options, collection, outcomes, progress and the report. The only part that knows pytest."""

from harness.plugin.claims import claim

__all__ = ["claim"]

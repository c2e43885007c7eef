"""Runs the converters between store and store, incrementally by ingestion time."""

from . import allocator  # noqa: F401 - for what loads polars below

# isort: split
from .report import Report
from .run import Progress, run

__all__ = ["Progress", "Report", "run"]

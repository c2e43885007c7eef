"""Runs the converters between store and store, incrementally by ingestion time."""

from .report import Report
from .run import Progress, run

__all__ = ["Progress", "Report", "run"]

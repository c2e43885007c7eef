"""Run the converters between store and store, incrementally by ingestion time."""

from .jemalloc import keep_freed_memory

keep_freed_memory()  # before an import below loads polars

from .report import Report  # noqa: E402
from .run import Progress, run  # noqa: E402

__all__ = ["Progress", "Report", "run"]

"""A reading client: episodes, steps, failures, scores and data sets as polars frames, by the filters of the pages."""

from spanloop.store.read_only import ReadLimits

from .client import Client
from .filters import FilterInput

__all__ = ["Client", "FilterInput", "ReadLimits"]

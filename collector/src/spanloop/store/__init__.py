"""The ClickHouse store: client, schema migrations and named queries, with polars frames as input and output.

Readers run a named query; writers insert a frame as one block. polars and the ClickHouse client are imported on first
use, because processes that need only the data directory or the embedded server use neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir

if TYPE_CHECKING:
    from .discovery import connect
    from .store import Store

__all__ = ["DataDir", "EmbeddedClickHouse", "Store", "connect"]

_LAZY = {"Store": ".store", "connect": ".discovery"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)

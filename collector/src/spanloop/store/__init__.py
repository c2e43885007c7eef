"""ClickHouse behind named queries, the embedded server, the data directory and the spool.

All of spanloop's data passes here: whoever reads asks a named query, whoever writes inserts a frame as one block.
What needs polars and the ClickHouse client is imported when it is first used, because the embedded server and the
processes that only look into the data directory need neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .datadir import DataDir
from .supervisor import EmbeddedClickHouse

if TYPE_CHECKING:
    from .access import connect
    from .store import Store

__all__ = ["DataDir", "EmbeddedClickHouse", "Store", "connect"]

_LAZY = {"Store": ".store", "connect": ".access"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)

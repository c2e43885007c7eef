"""ClickHouse behind named queries, the embedded server, the data directory and the spool.

All of spanloop's data passes here: whoever reads asks a named query, whoever writes inserts a frame as one block.
"""

from .connect import connect
from .datadir import DataDir
from .store import Store
from .supervisor import EmbeddedClickHouse

__all__ = ["DataDir", "EmbeddedClickHouse", "Store", "connect"]

"""The embedded ClickHouse server: started from the wheel ``chdb-core``, supervised, and announced in a run file.

The server process imports neither polars nor the ClickHouse client.
"""

from .supervisor import EmbeddedClickHouse

__all__ = ["EmbeddedClickHouse"]

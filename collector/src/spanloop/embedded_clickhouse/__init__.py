"""The embedded ClickHouse server: started from the wheel ``chdb-core``, supervised, and located by a run file.

The server process imports neither polars nor the ClickHouse client.
"""

from .supervisor import EmbeddedClickHouse

__all__ = ["EmbeddedClickHouse"]

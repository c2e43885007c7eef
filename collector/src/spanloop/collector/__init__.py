"""The OTLP receiver: acknowledge requests once they are on disk, then write them to ClickHouse.

Two halves meet only in the spool: the app (HTTP or gRPC request, spool, response) never waits for ClickHouse, and the
writer (spool, rows, ClickHouse) never sees a request. Start it with ``python -m spanloop.collector``.
"""

from .endpoints.app import create_app
from .writer import Writer

__all__ = ["Writer", "create_app"]

"""The OTLP receiver: an answered request is on disk, and the writer carries it to ClickHouse.

Two halves that meet only in the spool: the app (HTTP in, spool, answer) never waits for ClickHouse, and the writer
(spool, frames, ClickHouse) never sees a request. Start it with ``python -m spanloop.collector``.
"""

from .app import create_app
from .settings import Settings
from .writer import Writer

__all__ = ["Settings", "Writer", "create_app"]

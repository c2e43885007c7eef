"""Existing data into the store: OTLP files, the SDK's JSON dumps, and conversations in OpenAI's message format.

Everything passes the collector's own door (`spanloop.collector.validation`) and becomes the same rows as live spans. It
goes to ClickHouse directly and not through the collector's spool, because only the store can say what is there already.
"""

from .attached import ForeignTable
from .attached_logs import ForeignLogs
from .report import Place, Reject, Report
from .run import import_paths

__all__ = ["ForeignLogs", "ForeignTable", "Place", "Reject", "Report", "import_paths"]

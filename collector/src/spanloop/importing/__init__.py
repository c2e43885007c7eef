"""Import existing data into the store: OTLP files, the SDK's JSON dumps, conversations, another ClickHouse's tables.

All data passes the collector's validation (`spanloop.collector.validation`) and becomes the same rows as live spans. It
is inserted into ClickHouse directly, not through the collector's spool, because only the store knows which rows exist.
"""

from .importer import import_paths
from .remote_logs import ForeignLogs
from .remote_traces import ForeignTable
from .report import Place, Reject, Report

__all__ = ["ForeignLogs", "ForeignTable", "Place", "Reject", "Report", "import_paths"]

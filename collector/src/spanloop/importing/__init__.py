"""Existing data into the store: OTLP files, the SDK's JSON dumps, and conversations in OpenAI's message format.

Everything passes the collector's own door (`spanloop.collector.validation`) and becomes the same rows as live spans. It
goes to ClickHouse directly and not through the collector's spool, because only the store can say what is there already.
"""

from .importer import import_paths
from .remote_logs import RemoteLogs
from .remote_traces import RemoteTraces
from .report import Place, Reject, Report

__all__ = ["Place", "Reject", "RemoteLogs", "RemoteTraces", "Report", "import_paths"]

"""Log records as rows of ``otel_logs``, formatted as the OpenTelemetry ClickHouse exporter does.

Invariant: one row for each record of the requests, in their order. `validation` has checked ids and timestamps.
"""

from typing import Final

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from spanloop.foundation.tables.arrivals import OTEL_LOGS
from spanloop.semconv.attributes import SERVICE_NAME

from ..otlp.attribute_values import attributes, text
from .arrow_columns import (
    ATTRIBUTES,
    MapColumn,
    build_frame,
    datetime_column,
    names_of_type,
    number_column,
    string_column,
)

_BYTE: Final = 0xFF


class LogRows:
    """Collects the log records of requests as rows."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {name: [] for name in names_of_type(OTEL_LOGS, pl.String())}
        self._times: list[int] = []
        self._numbers: dict[str, list[int]] = {name: [] for name in names_of_type(OTEL_LOGS, pl.UInt8())}
        self._maps = {name: MapColumn() for name in names_of_type(OTEL_LOGS, ATTRIBUTES)}

    def add(self, request: ExportLogsServiceRequest) -> None:
        """Append every record of a request."""
        texts, maps = self._texts, self._maps
        for resource_logs in request.resource_logs:
            resource = attributes(resource_logs.resource.attributes)
            for scope_logs in resource_logs.scope_logs:
                scope = attributes(scope_logs.scope.attributes)
                for record in scope_logs.log_records:
                    self._add_record(record)
                    texts["ServiceName"].append(resource.get(SERVICE_NAME, ""))
                    texts["ResourceSchemaUrl"].append(resource_logs.schema_url)
                    texts["ScopeSchemaUrl"].append(scope_logs.schema_url)
                    texts["ScopeName"].append(scope_logs.scope.name)
                    texts["ScopeVersion"].append(scope_logs.scope.version)
                    maps["ResourceAttributes"].add(resource)
                    maps["ScopeAttributes"].add(scope)

    def to_frame(self) -> pl.DataFrame:
        """Return all rows so far, with the insertable columns of ``otel_logs`` that have no default."""
        columns = {name: string_column(values) for name, values in self._texts.items()}
        columns |= {name: column.to_arrow() for name, column in self._maps.items()}
        columns |= {name: number_column(values, pl.UInt8()) for name, values in self._numbers.items()}
        columns["Timestamp"] = datetime_column(self._times)
        return build_frame(columns)

    def _add_record(self, record: LogRecord) -> None:
        texts = self._texts
        texts["TraceId"].append(record.trace_id.hex())
        texts["SpanId"].append(record.span_id.hex())
        texts["SeverityText"].append(record.severity_text)
        texts["Body"].append(text(record.body))
        texts["EventName"].append(record.event_name)
        self._maps["LogAttributes"].add(attributes(record.attributes))
        self._times.append(record.time_unix_nano or record.observed_time_unix_nano)
        self._numbers["TraceFlags"].append(record.flags & _BYTE)
        self._numbers["SeverityNumber"].append(min(max(record.severity_number, 0), _BYTE))

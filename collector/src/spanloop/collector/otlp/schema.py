"""OTLP's trace schema, stated once, and what is generated from it.

From `TRACE_SCHEMA` come the field paths of attribute lists, the types of the duplicate-key check and both schema texts
of ``collector/queries/collector_insert_spans.sql``, which ``python -m spanloop.collector.otlp.schema`` writes.
`SHALLOW_REQUEST` is opentelemetry-proto's request type with arrays and kvlists as bytes. Invariant: a body that it
serialises unchanged has the values that a full parse finds. In another body a field may occur twice and be lost.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

TRACE_SCHEMA: Final = """syntax = "proto2";
message Value {
  optional string string_value = 1; optional bool bool_value = 2; optional int64 int_value = 3;
  optional double double_value = 4; optional bytes array_value = 5; optional bytes bytes_value = 7;
}
message Pair { optional string key = 1; optional Value value = 2; }
message Resource { repeated Pair attributes = 1; }
message Scope { optional string name = 1; optional string version = 2; repeated Pair attributes = 3; }
message Event { optional fixed64 time_unix_nano = 1; optional string name = 2; repeated Pair attributes = 3; }
message Link {
  optional bytes trace_id = 1; optional bytes span_id = 2; optional string trace_state = 3;
  repeated Pair attributes = 4;
}
message Status { optional string message = 2; optional int32 code = 3; }
message Span {
  optional bytes trace_id = 1; optional bytes span_id = 2; optional string trace_state = 3;
  optional bytes parent_span_id = 4; optional string name = 5; optional int32 kind = 6;
  optional fixed64 start_time_unix_nano = 7; optional fixed64 end_time_unix_nano = 8;
  repeated Pair attributes = 9; optional uint32 dropped_attributes_count = 10;
  repeated Event events = 11; optional uint32 dropped_events_count = 12;
  repeated Link links = 13; optional uint32 dropped_links_count = 14;
  optional Status status = 15; optional fixed32 flags = 16;
}
message ScopeSpans { optional Scope scope = 1; repeated Span spans = 2; optional string schema_url = 3; }
message ResourceSpans {
  optional Resource resource = 1; repeated ScopeSpans scope_spans = 2; optional string schema_url = 3;
}
message Request { repeated ResourceSpans resource_spans = 1; }
"""
"""ClickHouse reads it as it stands. A test compares it with opentelemetry-proto's descriptors."""

_COMPOUND: Final = ("array_value", "kvlist_value")
_MESSAGE: Final = re.compile(r"message (\w+) \{(.*?)\}", re.DOTALL)
_FIELD: Final = re.compile(r"(optional|repeated) (\w+) (\w+) = (\d+);")
_CLICKHOUSE_TYPES: Final = {
    "string": "String", "bytes": "String", "bool": "Bool", "int32": "Int32", "int64": "Int64", "double": "Float64",
    "uint32": "UInt32", "fixed32": "UInt32", "fixed64": "UInt64",
}  # fmt: skip
_LINE_WIDTH: Final = 122
_INSERT: Final = re.compile(r"(    format_schema = ').*?(',\n.*\n( *)FROM input\(').*?('\))", re.DOTALL)


class SchemaField(NamedTuple):
    """One field of a message."""

    name: str
    number: int
    type_name: str
    is_repeated: bool


@cache
def messages() -> Mapping[str, Mapping[str, SchemaField]]:
    """Return the fields of each message of `TRACE_SCHEMA` by name."""
    return {
        message: {
            name: SchemaField(name, int(number), type_name, label == "repeated")
            for label, type_name, name, number in _FIELD.findall(body)
        }
        for message, body in _MESSAGE.findall(TRACE_SCHEMA)
    }


def field_path(*names: str) -> tuple[int, ...]:
    """Return the field numbers on the way from a request down to a field, such as ``resource_spans, resource``."""
    message, numbers = "Request", list[int]()
    for name in names:
        field = messages()[message][name]
        numbers.append(field.number)
        message = field.type_name
    return tuple(numbers)


def array_bytes(value: AnyValue) -> bytes:
    """Return the array of a shallow value; empty when the value is no array."""
    return cast("bytes", value.array_value)


def _shallow_request_type() -> type[ExportTraceServiceRequest]:
    pool = descriptor_pool.DescriptorPool()
    _add_shallow(ExportTraceServiceRequest.DESCRIPTOR.file, pool, set())
    descriptor = pool.FindMessageTypeByName(ExportTraceServiceRequest.DESCRIPTOR.full_name)
    return cast("type[ExportTraceServiceRequest]", message_factory.GetMessageClass(descriptor))


def _add_shallow(file: FileDescriptor, pool: descriptor_pool.DescriptorPool, names: set[str]) -> None:
    """Add OTLP's own file and its dependencies, with bytes for values that hold values."""
    if file.name in names:
        return
    names.add(file.name)
    for dependency in file.dependencies:
        _add_shallow(dependency, pool, names)
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    for message in proto.message_type:
        for field in message.field:
            if message.name == AnyValue.DESCRIPTOR.name and field.name in _COMPOUND:
                field.type = FieldDescriptorProto.TYPE_BYTES
                field.ClearField("type_name")
    pool.AddSerializedFile(proto.SerializeToString())


SHALLOW_REQUEST: Final = _shallow_request_type()
"""To the type checkers OTLP's own; ``array_value`` and ``kvlist_value`` are bytes."""


def insert_statement(sql: str) -> str:
    """Return the INSERT statement with both schema texts made from `TRACE_SCHEMA`.

    Raises:
        ValueError: The text has no such statement.
    """
    match = _INSERT.search(sql)
    if match is None:
        raise ValueError("expected an INSERT with format_schema = '…' and input('…')")
    schema, between, indent, end = match.groups()
    structure = "\n".join(_column_lines("Request", len(indent))).lstrip()
    return f"{sql[: match.start()]}{schema}{TRACE_SCHEMA}{between}{structure}{end}{sql[match.end() :]}"


def _column_lines(message: str, indent: int) -> list[str]:
    """Return a message's fields as column definitions; a field that needs lines of its own starts a new one."""
    lines = [" " * indent]
    fields = messages()[message].values()
    for number, field in enumerate(fields, start=1):
        comma = "," if number < len(fields) else ""
        if _needs_lines(field):
            nested = _nested_lines(field, indent)
            lines[-1:] = [*filter(str.strip, lines[-1:]), *nested[:-1], nested[-1] + comma, " " * indent]
        else:
            column = f"{field.name} {_column_type(field, message)}{comma}"
            if lines[-1].strip() and len(lines[-1]) + 1 + len(column) > _LINE_WIDTH:
                lines.append(" " * indent)
            lines[-1] += f" {column}" if lines[-1].strip() else column
    return [line for line in lines if line.strip()]


def _nested_lines(field: SchemaField, indent: int) -> list[str]:
    """Return the column definition of a field that holds a value, somewhere below, as lines."""
    start, end = ("Array(Tuple(", "))") if field.is_repeated else ("Tuple(", ")")
    head = f"{' ' * indent}{field.name} {start}"
    *others, last = messages()[field.type_name].values()
    if not _needs_lines(last) or any(map(_needs_lines, others)):
        lines = [head, *_column_lines(field.type_name, indent + 4)]
    else:
        head += "".join(f"{other.name} {_column_type(other, field.type_name)}, " for other in others)
        first, *rest = _nested_lines(last, indent)
        if len(head + first.strip()) > _LINE_WIDTH:
            lines = [head.rstrip(), *_nested_lines(last, indent + 4)]
        else:
            lines = [head + first.strip(), *rest]
    return [*lines[:-1], lines[-1] + end]


def _needs_lines(field: SchemaField) -> bool:
    """Whether a field is an attribute's value, or holds one."""
    return field.type_name == "Value" or any(map(_needs_lines, messages().get(field.type_name, {}).values()))


def _column_type(field: SchemaField, message: str) -> str:
    if field.type_name in messages():
        nested = messages()[field.type_name].values()
        return f"Tuple({', '.join(f'{each.name} {_column_type(each, field.type_name)}' for each in nested)})"
    column_type = _CLICKHOUSE_TYPES[field.type_name]
    return f"Nullable({column_type})" if message == "Value" else column_type


if __name__ == "__main__":
    path = Path(str(files("spanloop.collector"))) / "queries" / "collector_insert_spans.sql"
    path.write_text(insert_statement(path.read_text(encoding="utf-8")), encoding="utf-8")

"""OTLP's schema is stated once: it is opentelemetry-proto's, and the SQL that reads spans is made from it."""

from hashlib import sha256
from importlib.resources import files

import pytest
from google.protobuf.descriptor import Descriptor
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.otlp.envelope import EVENT, LINK, RESOURCE, SCOPE, SPAN
from spanloop.collector.otlp.schema import insert_statement, messages
from spanloop.foundation.tables.arrivals import OTEL_TRACES

INSERT_SPANS = (files("spanloop.collector") / "queries" / "collector_insert_spans.sql").read_text(encoding="utf-8")
OUR_NAMES = {
    "ExportTraceServiceRequest": "Request", "KeyValue": "Pair", "AnyValue": "Value", "InstrumentationScope": "Scope"
}  # fmt: skip
SHALLOW = {"array_value": "bytes"}
SAME_ON_THE_WIRE = {"enum": "int32"}
TYPES = {
    1: "double", 3: "int64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string", 12: "bytes", 13: "uint32",
    14: "enum",
}  # fmt: skip


def compare(ours: str, descriptor: Descriptor) -> set[str]:
    """Assert that each field of a message is OTLP's own; return the messages that were seen."""
    seen = {ours}
    for field in messages()[ours].values():
        theirs = descriptor.fields_by_name[field.name]
        assert field.number == theirs.number
        assert field.is_repeated == theirs.is_repeated
        if theirs.message_type is None or field.name in SHALLOW:
            kind = SHALLOW.get(field.name) or TYPES[theirs.type]
            assert field.type_name == SAME_ON_THE_WIRE.get(kind, kind)
        else:
            assert field.type_name == OUR_NAMES.get(theirs.message_type.name, theirs.message_type.name)
            seen |= compare(field.type_name, theirs.message_type)
    return seen


def test_every_field_is_one_of_opentelemetry_proto() -> None:
    assert compare("Request", ExportTraceServiceRequest.DESCRIPTOR) == set(messages())


def test_the_insert_statement_is_made_from_the_schema() -> None:
    assert insert_statement(INSERT_SPANS) == INSERT_SPANS, "run: python -m spanloop.collector.otlp.schema"


def test_a_changed_insert_statement_is_put_right() -> None:
    changed = INSERT_SPANS.replace("optional string name = 5; ", "").replace("dropped_links_count UInt32, ", "")
    assert changed != INSERT_SPANS
    assert insert_statement(changed) == INSERT_SPANS


def test_the_insert_statement_names_every_column_but_the_time_of_the_insert() -> None:
    columns = INSERT_SPANS.partition("INSERT INTO otel_traces (")[2].partition(")")[0].split(",")
    assert [column.strip() for column in columns] == [name for name in OTEL_TRACES.schema if name != "IngestedAt"]


def test_the_insert_statement_is_the_one_that_was_measured() -> None:
    assert (
        sha256(INSERT_SPANS.encode()).hexdigest() == "e55f3ee2cc2dad26d1ea9a10c84b485a305f42a74568ab72b84b297a1a9c362c"
    )


def test_another_text_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an INSERT"):
        insert_statement("SELECT 1")


def test_paths_of_attribute_values() -> None:
    assert (RESOURCE, SCOPE) == ((1, 1, 1, 2), (1, 2, 1, 3, 2))
    assert (SPAN, EVENT, LINK) == ((1, 2, 2, 9, 2), (1, 2, 2, 11, 3, 2), (1, 2, 2, 13, 4, 2))

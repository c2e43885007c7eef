"""Encode trace requests so that ClickHouse parses them to the rows that `span_rows` would make.

ClickHouse's statement reads no kvlists and no arrays except those of one plain string. It keeps duplicate keys, and
formats very large, very small and special doubles differently. Such values become text here; most bodies have none.
Invariant: the protobuf runtime writes the result, so every field that OTLP names occurs once; its arrays and kvlists
are text, or were checked byte by byte.
"""

from collections.abc import Iterable, MutableSequence
from typing import Any, Final, NamedTuple, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .attribute_values import attributes, text
from .envelope import attribute_lists
from .number_arrays import number_texts
from .schema import SHALLOW_REQUEST, array_bytes, messages
from .unsupported_values import LocatedValue, compound_values, unsupported_values
from .wire import MalformedError, Message, Path, parse, parses_at, serialize


class EncodedRequest(NamedTuple):
    """A request that ClickHouse can parse."""

    body: bytes
    spans: int


def encode_body(body: bytes) -> EncodedRequest:
    """Encode a body for ClickHouse.

    Raises:
        MalformedError: The body is not a trace request.
    """
    request = parse(SHALLOW_REQUEST, body)
    spans = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
    return EncodedRequest(encode_request(request, body), spans)


def encode_request(request: ExportTraceServiceRequest, body: bytes) -> bytes:
    """Return a request's bytes, encoded for ClickHouse.

    Args:
        request: A `SHALLOW_REQUEST`; the function may change it.
        body: The bytes that it was parsed from; returned when no value needs encoding.

    Raises:
        MalformedError: An array or a kvlist is not protobuf.
    """
    if serialize(request) != body:
        # A sender with another encoding, or a repeated field: parse and write it in full.
        body = serialize(parse(ExportTraceServiceRequest, body))
        request = parse(SHALLOW_REQUEST, body)
    if has_unique_keys(request, body):
        values = unsupported_values(request, body)
        if not values:
            return body
        _make_texts(values)
    else:
        _make_texts(compound_values(request))
        for _, pairs in attribute_lists(request):
            _keep_last(pairs)
    return serialize(request)


def _make_texts(values: Iterable[LocatedValue]) -> None:
    numbers = number_texts([array_bytes(value) for value, _ in values])
    for (value, path), numbers_text in zip(values, numbers, strict=True):
        value.string_value = numbers_text or _text(value, path)


def _text(value: AnyValue, path: Path) -> str:
    """Return the text of a shallow value at a path in a request."""
    raw = serialize(value)
    if not parses_at(raw, ExportTraceServiceRequest, path):
        raise MalformedError(f"a value of {len(raw)} bytes in an attribute: no UTF-8, cut off, or nested too deeply")
    return text(parse(AnyValue, raw))


def _keep_last(pairs: MutableSequence[KeyValue]) -> None:
    if len({pair.key for pair in pairs}) == len(pairs):
        return
    last_values = attributes(pairs)
    del pairs[len(last_values) :]
    for pair, (key, value) in zip(pairs, last_values.items(), strict=True):
        pair.key, pair.value.string_value = key, value


_PACKAGE: Final = "spanloop.unique_keys"


def has_unique_keys(request: ExportTraceServiceRequest, body: bytes) -> bool:
    """Whether every key of ``request``, serialised to ``body``, occurs once in its list.

    A protobuf map has the wire format of a list of pairs. So the body is parsed as a request whose attributes are maps:
    a map is smaller than its list when a key occurs twice.
    """
    maps: Any = _REQUEST()
    maps.MergeFromString(body)
    for resource, resource_maps in zip(request.resource_spans, maps.resource_spans, strict=True):
        if len(resource.resource.attributes) != len(resource_maps.resource.attributes):
            return False
        for scope, scope_maps in zip(resource.scope_spans, resource_maps.scope_spans, strict=True):
            if len(scope.scope.attributes) != len(scope_maps.scope.attributes):
                return False
            for span, span_maps in zip(scope.spans, scope_maps.spans, strict=True):
                if len(span.attributes) != len(span_maps.attributes):
                    return False
                # Most spans have none of these: the check costs a fifth of walking two empty lists.
                events, links = span.events, span.links
                if events and not _are_unique(events, span_maps.events):
                    return False
                if links and not _are_unique(links, span_maps.links):
                    return False
    return True


def _are_unique(items: Iterable[Span.Event | Span.Link], maps: Any) -> bool:
    return all(len(item.attributes) == len(of_item.attributes) for item, of_item in zip(items, maps, strict=True))


def _request_type() -> type[Message]:
    """Make a request type from the schema: the messages that hold attributes, with maps for attribute lists."""
    file = FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in messages().items():
        message = file.message_type.add(name=name)
        for field in fields.values():
            if field.name != "attributes" and not _holds_attributes(field.type_name):
                continue  # the runtime carries it along as an unknown field
            type_name = _add_entry(message, name) if field.name == "attributes" else field.type_name
            label = FieldDescriptorProto.LABEL_REPEATED if field.is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
            message.field.add(
                name=field.name, number=field.number, label=label, type=FieldDescriptorProto.TYPE_MESSAGE,
                type_name=f".{_PACKAGE}.{type_name}",
            )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.Request")
    return cast("type[Message]", message_factory.GetMessageClass(descriptor))


def _holds_attributes(message: str) -> bool:
    fields = messages().get(message, {})
    return "attributes" in fields or any(_holds_attributes(field.type_name) for field in fields.values())


def _add_entry(message: DescriptorProto, name: str) -> str:
    entry = message.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    for number, (field, kind) in enumerate(
        (("key", FieldDescriptorProto.TYPE_STRING), ("value", FieldDescriptorProto.TYPE_BYTES)), 1
    ):
        entry.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL, type=kind)
    return f"{name}.AttributesEntry"


_REQUEST: Final = _request_type()

"""Detect duplicate keys in the attribute lists of a trace request.

A protobuf map has the wire format of a list of pairs. So the request is parsed as one whose attributes are maps: a map
is smaller than its list when a key occurs twice.
"""

from collections.abc import Iterable
from typing import Any, Final, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .schema import messages
from .wire import Message

_PACKAGE: Final = "spanloop.unique_keys"


def has_unique_keys(request: ExportTraceServiceRequest, body: bytes) -> bool:
    """Whether every key of ``request``, serialised to ``body``, occurs once in its list."""
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

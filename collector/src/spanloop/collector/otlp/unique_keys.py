"""Whether an attribute list of a trace request names a key twice, asked of the protobuf runtime instead of each key.

A protobuf map is on the wire what a list of pairs is. So a request is read as one whose attributes are maps, where the
last value of a key is all that stays: a map is smaller than its list when a key came twice.
"""

from collections.abc import Iterable
from typing import Any, Final, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .wire import Message

_PACKAGE: Final = "spanloop.unique_keys"
_FIELDS: Final = {
    # field numbers of opentelemetry-proto; what is not named here is carried along as it came
    "Resource": {"attributes": (1, "")},
    "Scope": {"attributes": (3, "")},
    "Event": {"attributes": (3, "")},
    "Link": {"attributes": (4, "")},
    "Span": {"attributes": (9, ""), "events": (11, "Event"), "links": (13, "Link")},
    "ScopeSpans": {"scope": (1, "Scope"), "spans": (2, "Span")},
    "ResourceSpans": {"resource": (1, "Resource"), "scope_spans": (2, "ScopeSpans")},
    "Request": {"resource_spans": (1, "ResourceSpans")},
}
_SINGULAR: Final = frozenset({"resource", "scope"})


def has_unique_keys(request: ExportTraceServiceRequest, body: bytes) -> bool:
    """Whether every key is there once.

    Args:
        request: Any request.
        body: Its bytes.
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
                # Most spans have none of these: to ask costs a fifth of walking two empty lists side by side.
                events, links = span.events, span.links
                if events and not _are_unique(events, span_maps.events):
                    return False
                if links and not _are_unique(links, span_maps.links):
                    return False
    return True


def _are_unique(items: Iterable[Span.Event | Span.Link], maps: Any) -> bool:
    return all(len(item.attributes) == len(of_item.attributes) for item, of_item in zip(items, maps, strict=True))


def _request_type() -> type[Message]:
    file = FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, (number, type_name) in fields.items():
            label = FieldDescriptorProto.LABEL_OPTIONAL if field in _SINGULAR else FieldDescriptorProto.LABEL_REPEATED
            message.field.add(
                name=field, number=number, label=label, type=FieldDescriptorProto.TYPE_MESSAGE,
                type_name=f".{_PACKAGE}.{type_name or _add_entry(message, name)}",
            )  # fmt: skip
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindMessageTypeByName(f"{_PACKAGE}.Request")
    return cast("type[Message]", message_factory.GetMessageClass(found))


def _add_entry(message: DescriptorProto, name: str) -> str:
    entry = message.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    for number, (field, kind) in enumerate(
        (("key", FieldDescriptorProto.TYPE_STRING), ("value", FieldDescriptorProto.TYPE_BYTES)), 1
    ):
        entry.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL, type=kind)
    return f"{name}.AttributesEntry"


_REQUEST: Final = _request_type()

"""Trace requests read no deeper than an attribute's value: an array or a kvlist stays bytes, whatever it holds.

Invariant: a body that comes out as it went in has the fields and values that the runtime finds when it reads
everything. In another one a field may have come twice: the last one counts, but two arrays are one longer array, and of
that the first half is lost here. Whether an array's or a kvlist's bytes are any is left to whoever looks into them.
"""

from typing import Final, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

_COMPOUND: Final = ("array_value", "kvlist_value")


def array_bytes(value: AnyValue) -> bytes:
    """The array of a shallow value; empty when it is none."""
    return cast("bytes", value.array_value)


def _request_type() -> type[ExportTraceServiceRequest]:
    pool = descriptor_pool.DescriptorPool()
    _add(ExportTraceServiceRequest.DESCRIPTOR.file, pool, set())
    found = pool.FindMessageTypeByName(ExportTraceServiceRequest.DESCRIPTOR.full_name)
    return cast("type[ExportTraceServiceRequest]", message_factory.GetMessageClass(found))


def _add(file: FileDescriptor, pool: descriptor_pool.DescriptorPool, names: set[str]) -> None:
    """OTLP's own schema, with bytes for values that hold values."""
    if file.name in names:
        return
    names.add(file.name)
    for dependency in file.dependencies:
        _add(dependency, pool, names)
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    for message in proto.message_type:
        for field in message.field:
            if message.name == AnyValue.DESCRIPTOR.name and field.name in _COMPOUND:
                field.type = FieldDescriptorProto.TYPE_BYTES
                field.ClearField("type_name")
    pool.AddSerializedFile(proto.SerializeToString())


SHALLOW_REQUEST: Final = _request_type()
"""To the type checkers OTLP's own; ``array_value`` and ``kvlist_value`` are bytes."""

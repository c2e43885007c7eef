"""Detect the format of each document and convert it to OTLP requests.

Invariant: every document becomes at least one `ImportRequest` or `Reject`; nothing is skipped silently.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final, cast

from spanloop.collector.otlp.json_encoding import decode_logs, decode_traces
from spanloop.collector.otlp.wire import MalformedError, serialize
from spanloop.collector.validation import Signal, validate_request

from .atif import is_atif
from .conversations import MESSAGE_KEYS, Conversation, ConversationReader
from .files import Document
from .import_requests import ImportRequest
from .report import BadItemError, Place, Reject
from .sdk_dumps import convert_log_record, convert_span

_EXPECTED: Final = (
    "an OTLP request (resourceSpans, resourceLogs), a span or log record as printed by the SDK, a conversation "
    "(messages, traj or conversations), or a trajectory of ATIF (schema_version)"
)
_DUMP_LIST_KEYS: Final = ("spans", "log_events", "log_records")
"""Keys of a recording's lists of spans and log records printed by the SDK."""


class DocumentReader:
    """Converts the documents of one file.

    Args:
        default_time_ns: The time of conversations without a timestamp.
    """

    def __init__(self, default_time_ns: int) -> None:
        self._conversations = ConversationReader()
        self._default_time_ns = default_time_ns

    def read(self, document: Document) -> Iterator[ImportRequest | Reject]:
        """Yield the requests and rejections of a document."""
        if isinstance(document.content, bytes):
            yield _protobuf(document.content, document.place)
        else:
            yield from self._value(document.content, document.place)

    def _value(self, value: object, place: Place) -> Iterator[ImportRequest | Reject]:
        if isinstance(value, list):
            for index, item in enumerate(cast("list[object]", value)):
                yield from self._value(item, place.at(f"[{index}]"))
        elif isinstance(value, dict):
            yield from self._object(cast("dict[str, object]", value), place)
        else:
            yield Reject(place, "unknown_format", f"{value!r:.60}", _EXPECTED)

    def _object(self, fields: Mapping[str, object], place: Place) -> Iterator[ImportRequest | Reject]:
        if is_atif(fields):
            yield self._convert(self._trajectory, fields, place)
        elif any(key in fields for key in MESSAGE_KEYS):
            yield self._convert(self._conversation, fields, place)
        elif "resourceSpans" in fields:
            yield from _otlp_json(Signal.TRACES, fields, place)
        elif "resourceLogs" in fields:
            yield from _otlp_json(Signal.LOGS, fields, place)
        elif "context" in fields and "start_time" in fields:
            yield self._convert(_span, fields, place)
        elif "observed_timestamp" in fields or ("body" in fields and "severity_number" in fields):
            yield self._convert(_log_record, fields, place)
        elif any(isinstance(fields.get(key), list) for key in _DUMP_LIST_KEYS):
            for key in _DUMP_LIST_KEYS:
                for index, item in enumerate(cast("list[object]", fields.get(key) or [])):
                    yield from self._value(item, place.at(f"{key}[{index}]"))
        else:
            keys = ", ".join(map(repr, list(fields)[:8]))
            yield Reject(place, "unknown_format", f"an object with {keys or 'nothing'}", _EXPECTED)

    def _conversation(self, fields: Mapping[str, object], place: Place) -> ImportRequest:
        return _request(self._conversations.read(fields, default_time_ns=self._default_time_ns), place)

    def _trajectory(self, fields: Mapping[str, object], place: Place) -> ImportRequest:
        return _request(self._conversations.read_atif(fields, default_time_ns=self._default_time_ns), place)

    @staticmethod
    def _convert(
        read: Callable[[Mapping[str, object], Place], ImportRequest], fields: Mapping[str, object], place: Place
    ) -> ImportRequest | Reject:
        try:
            return read(fields, place)
        except BadItemError as error:
            return error.reject(place)
        except RecursionError:
            return Reject(place, "nested_too_deeply", "too many levels of nested values", "a few levels")


def _request(conversation: Conversation, place: Place) -> ImportRequest:
    body = serialize(conversation.request)
    return ImportRequest(place, Signal.TRACES, body, is_conversation=True, score=conversation.score)


def _span(fields: Mapping[str, object], place: Place) -> ImportRequest:
    return ImportRequest(place, Signal.TRACES, serialize(convert_span(fields)))


def _log_record(fields: Mapping[str, object], place: Place) -> ImportRequest:
    return ImportRequest(place, Signal.LOGS, serialize(convert_log_record(fields)))


def _otlp_json(signal: Signal, fields: Mapping[str, object], place: Place) -> Iterator[ImportRequest | Reject]:
    body = json.dumps(fields).encode()
    try:
        decoded = decode_traces(body) if signal is Signal.TRACES else decode_logs(body)
    except MalformedError as error:
        yield Reject(place, "malformed_request", str(error), f"an OTLP/JSON request of {signal}")
        return
    yield ImportRequest(place, signal, decoded.body)
    if decoded.undecodable:
        yield Reject(place, "undecodable", decoded.detail, "the fields of the OTLP specification", decoded.undecodable)


def _protobuf(body: bytes, place: Place) -> ImportRequest:
    """Detect the signal: traces and logs have the same envelope, so the one with more accepted items is chosen."""
    best_signal, most_accepted = Signal.TRACES, -1
    for signal in (Signal.TRACES, Signal.LOGS):
        try:
            accepted = validate_request(signal, body).accepted
        except MalformedError:
            continue
        if accepted > most_accepted:
            best_signal, most_accepted = signal, accepted
    return ImportRequest(place, best_signal, body)

"""Documents → read_requests: which format a document is of, and what that makes of it.

Invariant: every document becomes at least one parcel or `Reject`; nothing is skipped in silence.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final, cast

from spanloop.collector.otlp.json_encoding import decode_logs, decode_traces
from spanloop.collector.otlp.wire import MalformedError, serialize
from spanloop.collector.validation import Signal, validate_request

from .conversations import MESSAGE_KEYS, ConversationReader
from .files import Document
from .import_requests import ImportRequest
from .report import BadItemError, Place, Reject
from .sdk_dumps import convert_log_record, convert_span

_EXPECTED: Final = (
    "an OTLP request (resourceSpans, resourceLogs), a span or log record as the SDK prints it, or a conversation "
    "(messages, traj or conversations)"
)
_DUMP_LIST_KEYS: Final = ("spans", "log_events", "log_records")
"""Keys under which a recording holds what the SDK printed."""


class DocumentReader:
    """Reads the documents of one file.

    Args:
        default_time_ns: When conversations took place that do not say so.
    """

    def __init__(self, default_time_ns: int) -> None:
        self._conversations = ConversationReader()
        self._default_time_ns = default_time_ns

    def read(self, document: Document) -> Iterator[ImportRequest | Reject]:
        """What the document holds."""
        if isinstance(document.content, bytes):
            yield _protobuf(document.content, document.place)
        else:
            yield from self._value(document.content, document.place)

    def _value(self, value: object, place: Place) -> Iterator[ImportRequest | Reject]:
        if isinstance(value, list):
            for at, item in enumerate(cast("list[object]", value)):
                yield from self._value(item, place.at(f"[{at}]"))
        elif isinstance(value, dict):
            yield from self._object(cast("dict[str, object]", value), place)
        else:
            yield Reject(place, "unknown_format", f"{value!r:.60}", _EXPECTED)

    def _object(self, fields: Mapping[str, object], place: Place) -> Iterator[ImportRequest | Reject]:
        if any(key in fields for key in MESSAGE_KEYS):
            yield self._located(self._conversation, fields, place)
        elif "resourceSpans" in fields:
            yield from _otlp_json(Signal.TRACES, fields, place)
        elif "resourceLogs" in fields:
            yield from _otlp_json(Signal.LOGS, fields, place)
        elif "context" in fields and "start_time" in fields:
            yield self._located(_span, fields, place)
        elif "observed_timestamp" in fields or ("body" in fields and "severity_number" in fields):
            yield self._located(_log_record, fields, place)
        elif any(isinstance(fields.get(key), list) for key in _DUMP_LIST_KEYS):
            for key in _DUMP_LIST_KEYS:
                for at, item in enumerate(cast("list[object]", fields.get(key) or [])):
                    yield from self._value(item, place.at(f"{key}[{at}]"))
        else:
            keys = ", ".join(map(repr, list(fields)[:8]))
            yield Reject(place, "unknown_format", f"an object with {keys or 'nothing'}", _EXPECTED)

    def _conversation(self, fields: Mapping[str, object], place: Place) -> ImportRequest:
        found = self._conversations.read(fields, default_time_ns=self._default_time_ns)
        body = serialize(found.request)
        return ImportRequest(place, Signal.TRACES, body, is_conversation=True, score=found.score)

    @staticmethod
    def _located(
        read: Callable[[Mapping[str, object], Place], ImportRequest], fields: Mapping[str, object], place: Place
    ) -> ImportRequest | Reject:
        try:
            return read(fields, place)
        except BadItemError as error:
            return error.reject(place)
        except RecursionError:
            return Reject(place, "nested_too_deeply", "values within values within values", "a few levels")


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
    """Traces and logs have the same envelope: whichever the door lets more of in is what the body holds."""
    best, most = Signal.TRACES, -1
    for signal in (Signal.TRACES, Signal.LOGS):
        try:
            accepted = validate_request(signal, body).accepted
        except MalformedError:
            continue
        if accepted > most:
            best, most = signal, accepted
    return ImportRequest(place, best, body)

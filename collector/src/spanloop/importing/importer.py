"""Import files: documents are converted to OTLP requests, validated by the collector, and inserted in blocks.

Invariant: accepted + rejected = input, where the input's items are spans, log records and conversations. A damaged file
loses only what cannot be read from it. Memory is bounded by one block and one document.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.otlp.wire import MalformedError, parse
from spanloop.collector.redaction.redactor import Redactor
from spanloop.collector.validation import RejectReason, Signal, validate_request
from spanloop.store import Store

from . import files
from .deduplicated_inserts import store_logs, store_scores, store_spans
from .files import Document
from .format_detection import DocumentReader
from .import_requests import ImportRequest
from .report import CONVERSATIONS, LOG_RECORDS, SCORES, SPANS, SPANS_OF_CONVERSATIONS, ProgressCallback, Reject, Report

BLOCK_BYTES: Final = 16 * 2**20
"""Size of the bodies in one block, as in the collector's writer."""

BLOCK_REQUESTS: Final = 10_000

_EXPECTED: Final = {
    RejectReason.BAD_TRACE_ID: "16 bytes that are not all zero",
    RejectReason.BAD_SPAN_ID: "8 bytes that are not all zero",
    RejectReason.BAD_PARENT_SPAN_ID: "8 bytes, or none",
    RejectReason.TIMESTAMP_OUT_OF_RANGE: "a time before 2106",
    RejectReason.UNDECODABLE: "an OTLP message",
}

OnReject = Callable[[Reject], None]


class _ValidRequest(NamedTuple):
    """A request that passed validation."""

    source: ImportRequest
    body: bytes
    items: int


def import_paths(
    store: Store,
    paths: Sequence[Path],
    *,
    on_reject: OnReject,
    progress: ProgressCallback | None = None,
    redactor: Redactor | None = None,
) -> Report:
    """Import files, and folders of files.

    Importing again changes nothing: items that the store holds are counted as known. An interrupted import can be run
    again.

    Args:
        store: The store to insert into.
        paths: OTLP requests as JSON (one a file, or one a line) or protobuf (one a file, or framed), spans and
            log records as printed by the SDK, conversations as JSONL; each may be gzipped.
        on_reject: Called with each rejection.
        progress: Called after each document with the bytes read, and the bytes of all files.
        redactor: The redaction rules; default: the attributes known to leak secrets.

    Raises:
        ConfigurationError: A path does not exist, or a folder holds no file to read.
        StoreError: ClickHouse is unreachable or rejected a request. Items imported before stay.
    """
    return _Importer(store, on_reject, redactor or Redactor()).run(files.find(paths), progress)


class _Importer:
    def __init__(self, store: Store, on_reject: OnReject, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor
        self._on_reject = on_reject
        self._report = Report()
        self._block: list[_ValidRequest] = []
        self._block_bytes = 0

    def run(self, paths: Sequence[Path], on_progress: ProgressCallback | None) -> Report:
        sizes = [path.stat().st_size for path in paths]
        for index, path in enumerate(paths):
            offset = sum(sizes[:index])

            def read_so_far(size_bytes: int, offset: int = offset) -> None:
                if on_progress is not None:
                    on_progress(offset + size_bytes, sum(sizes))

            for item in read_requests(path, read_so_far):
                if isinstance(item, Reject):
                    self._reject(item)
                else:
                    self._add(item)
        self._flush()
        return self._report

    def _reject(self, reject: Reject) -> None:
        self._report.input += reject.items
        self._report.rejected[reject.reason] += reject.items
        self._on_reject(reject)

    def _add(self, request: ImportRequest) -> None:
        try:
            validation = validate_request(request.signal, request.body, redactor=self._redactor)
        except MalformedError as error:
            self._reject(Reject(request.place, "malformed_request", str(error), f"an OTLP request of {request.signal}"))
            return
        rejected = {RejectReason(reason): count for reason, count in validation.rejected.items()}
        if request.is_conversation and rejected:
            reason = next(iter(rejected))
            self._reject(
                Reject(request.place, reason, "a conversation with it", _EXPECTED.get(reason, "see the reason"))
            )
            return
        for reason, count in rejected.items():
            got = f"{count} of {validation.accepted + sum(rejected.values())}"
            self._reject(Reject(request.place, reason, got, _EXPECTED.get(reason, "see the reason"), count))
        if validation.accepted:
            self._report.input += 1 if request.is_conversation else validation.accepted
            self._block.append(_ValidRequest(request, validation.body, validation.accepted))
            self._block_bytes += len(validation.body)
        if self._block_bytes >= BLOCK_BYTES or len(self._block) >= BLOCK_REQUESTS:
            self._flush()

    def _flush(self) -> None:
        traces = [request for request in self._block if request.source.signal is Signal.TRACES]
        if traces:
            new = store_spans(self._store, (parse(ExportTraceServiceRequest, request.body) for request in traces))
            self._count_spans(traces, new)
        logs = [request.body for request in self._block if request.source.signal is Signal.LOGS]
        if logs:
            new = store_logs(self._store, (parse(ExportLogsServiceRequest, body) for body in logs))
            self._count(LOG_RECORDS, new)
        # Scores are inserted last, so that a stored score implies a stored conversation.
        scores = [request.source.score for request in traces if request.source.score is not None]
        if scores:
            self._count(SCORES, store_scores(self._store, scores))
        self._block, self._block_bytes = [], 0

    def _count_spans(self, traces: Sequence[_ValidRequest], new: Sequence[bool]) -> None:
        start = 0
        for request in traces:
            spans = new[start : start + request.items]
            start += request.items
            if request.source.is_conversation:
                self._count(CONVERSATIONS, [any(spans)])
            self._count(SPANS_OF_CONVERSATIONS if request.source.is_conversation else SPANS, spans)

    def _count(self, kind: str, new: Sequence[bool]) -> None:
        self._report.new[kind] += sum(new)
        self._report.known[kind] += len(new) - sum(new)


def read_requests(path: Path, on_progress: files.BytesCallback) -> Iterator[ImportRequest | Reject]:
    """Yield the requests of a file, and a rejection for request part that cannot be read."""
    modified_ns = int(path.stat().st_mtime) * 1_000_000_000
    reader = DocumentReader(default_time_ns=min(max(modified_ns, 0), time.time_ns()))
    for item in files.read(path, on_progress):
        if isinstance(item, Document):
            yield from reader.read(item)
        else:
            yield item

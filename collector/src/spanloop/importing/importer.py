"""One import: files → documents → requests → the collector's door → blocks → the store.

Invariant: accepted + rejected = input, where the input's items are spans, log records and conversations. A file that
ends badly costs what could not be read of it. Memory is bounded by one block and one document.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.otlp.wire import MalformedError, parse
from spanloop.collector.redaction import Redactor
from spanloop.collector.validation import RejectReason, Signal, validate_request
from spanloop.store import Store

from . import files
from .deduplicated_inserts import store_logs, store_scores, store_spans
from .files import Document
from .format_detection import DocumentReader
from .import_requests import ImportRequest
from .report import CONVERSATIONS, LOG_RECORDS, SCORES, SPANS, SPANS_OF_CONVERSATIONS, Reject, Report

BLOCK_BYTES: Final = 16 * 2**20
"""Bodies in one block, as in the collector's writer."""

BLOCK_REQUESTS: Final = 10_000

_EXPECTED: Final = {
    RejectReason.BAD_TRACE_ID: "16 bytes that are not all zero",
    RejectReason.BAD_SPAN_ID: "8 bytes that are not all zero",
    RejectReason.BAD_PARENT_SPAN_ID: "8 bytes, or none",
    RejectReason.TIMESTAMP_OUT_OF_RANGE: "a time before 2106",
    RejectReason.UNDECODABLE: "an OTLP message",
}

Progress = Callable[[int, int], None]
"""Called with the bytes read so far, and the bytes of all files."""

OnReject = Callable[[Reject], None]


class _Admitted(NamedTuple):
    """A parcel that the door let in."""

    parcel: ImportRequest
    body: bytes
    items: int


def import_paths(
    store: Store,
    paths: Sequence[Path],
    *,
    on_reject: OnReject,
    progress: Progress | None = None,
    redactor: Redactor | None = None,
) -> Report:
    """Import files, and folders of files.

    Importing again changes nothing: what the store holds already is counted as known. An import that was interrupted
    is simply run again.

    Args:
        store: Where to.
        paths: OTLP requests as JSON (one a file, or one a line) or protobuf (one a file, or framed), spans and
            log records as the SDK prints them, conversations as JSONL; each may be gzipped.
        on_reject: Told of everything that was not imported.
        progress: Told after each document.
        redactor: What nobody may store; default the known leaks.

    Raises:
        ConfigurationError: A path does not exist, or a folder holds no file to read.
        StoreError: ClickHouse refused or is out of reach. What was imported before stays.
    """
    return _Import(store, on_reject, redactor or Redactor()).run(files.find(paths), progress)


class _Import:
    def __init__(self, store: Store, on_reject: OnReject, redactor: Redactor) -> None:
        self._store = store
        self._redactor = redactor
        self._on_reject = on_reject
        self._report = Report()
        self._block: list[_Admitted] = []
        self._block_bytes = 0

    def run(self, found: Sequence[Path], progress: Progress | None) -> Report:
        sizes = [path.stat().st_size for path in found]
        for at, path in enumerate(found):
            before = sum(sizes[:at])

            def read_so_far(size_bytes: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + size_bytes, sum(sizes))

            for each in read_requests(path, read_so_far):
                if isinstance(each, Reject):
                    self._reject(each)
                else:
                    self._admit(each)
        self._flush()
        return self._report

    def _reject(self, reject: Reject) -> None:
        self._report.input += reject.items
        self._report.rejected[reject.reason] += reject.items
        self._on_reject(reject)

    def _admit(self, parcel: ImportRequest) -> None:
        try:
            validation = validate_request(parcel.signal, parcel.body, redactor=self._redactor)
        except MalformedError as error:
            self._reject(Reject(parcel.place, "malformed_request", str(error), f"an OTLP request of {parcel.signal}"))
            return
        rejected = {RejectReason(reason): count for reason, count in validation.rejected.items()}
        if parcel.is_conversation and rejected:
            reason = next(iter(rejected))
            self._reject(
                Reject(parcel.place, reason, "a conversation with it", _EXPECTED.get(reason, "see the reason"))
            )
            return
        for reason, count in rejected.items():
            got = f"{count} of {validation.accepted + sum(rejected.values())}"
            self._reject(Reject(parcel.place, reason, got, _EXPECTED.get(reason, "see the reason"), count))
        if validation.accepted:
            self._report.input += 1 if parcel.is_conversation else validation.accepted
            self._block.append(_Admitted(parcel, validation.body, validation.accepted))
            self._block_bytes += len(validation.body)
        if self._block_bytes >= BLOCK_BYTES or len(self._block) >= BLOCK_REQUESTS:
            self._flush()

    def _flush(self) -> None:
        traces = [each for each in self._block if each.parcel.signal is Signal.TRACES]
        if traces:
            new = store_spans(self._store, (parse(ExportTraceServiceRequest, each.body) for each in traces))
            self._count_spans(traces, new)
        logs = [each.body for each in self._block if each.parcel.signal is Signal.LOGS]
        if logs:
            new = store_logs(self._store, (parse(ExportLogsServiceRequest, body) for body in logs))
            self._count(LOG_RECORDS, new)
        # Scores last: a conversation whose score is there is there itself.
        scores = [each.parcel.score for each in traces if each.parcel.score is not None]
        if scores:
            self._count(SCORES, store_scores(self._store, scores))
        self._block, self._block_bytes = [], 0

    def _count_spans(self, traces: Sequence[_Admitted], new: Sequence[bool]) -> None:
        at = 0
        for each in traces:
            spans = new[at : at + each.items]
            at += each.items
            if each.parcel.is_conversation:
                self._count(CONVERSATIONS, [any(spans)])
            self._count(SPANS_OF_CONVERSATIONS if each.parcel.is_conversation else SPANS, spans)

    def _count(self, kind: str, new: Sequence[bool]) -> None:
        self._report.new[kind] += sum(new)
        self._report.known[kind] += len(new) - sum(new)


def read_requests(path: Path, progress: files.Progress) -> Iterator[ImportRequest | Reject]:
    """What a file holds; what cannot be read of it, too."""
    modified_ns = int(path.stat().st_mtime) * 1_000_000_000
    reader = DocumentReader(default_time_ns=min(max(modified_ns, 0), time.time_ns()))
    for found in files.read(path, progress):
        if isinstance(found, Document):
            yield from reader.read(found)
        else:
            yield found

"""Read files as documents: JSON values or protobuf requests, each with its place.

A file is read line by line if its first line is a whole JSON value, so its size is not limited; otherwise it is read
as a whole (one document, an array, or concatenated documents, as printed by the SDK's console exporters).

Invariant: every part of a file becomes a document or a `Reject` with its place.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError

from .report import Place, Reject

SUFFIXES: Final = frozenset({".json", ".jsonl", ".ndjson", ".pb", ".binpb", ".bin", ".otlp", ".proto"})
"""Suffixes of the files that are read from a folder; each may be followed by ``.gz``."""

DOCUMENT_LIMIT_BYTES: Final = 256 * 2**20
"""Maximum size of a line, or of a file that is not JSONL, after decompression."""

_DECODER: Final = json.JSONDecoder()
_GZIP_MAGIC: Final = b"\x1f\x8b"
_LENGTH_BYTES: Final = 4
_FIRST_FIELD: Final = 0x0A
_TOO_LARGE: Final = f"at most {DOCUMENT_LIMIT_BYTES // 2**20} MiB"


class Document(NamedTuple):
    """One JSON value, or one protobuf request (``bytes``)."""

    place: Place
    content: object


BytesCallback = Callable[[int], None]
"""Receives the bytes of the file read so far."""


def find(paths: Sequence[Path]) -> list[Path]:
    """Return the given files, and the files with a known suffix below the given folders, sorted.

    Raises:
        ConfigurationError: A path does not exist, or a folder holds no file to read.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            folder_files = sorted(file for file in path.rglob("*") if file.is_file() and _suffix(file) in SUFFIXES)
            if not folder_files:
                raise ConfigurationError(
                    f"The folder {path} holds no file to import.",
                    next_step=f"Files end with one of {', '.join(sorted(SUFFIXES))}, also followed by .gz; "
                    "give the path of a file with another suffix.",
                )
            files += folder_files
        elif path.exists():
            files.append(path)
        else:
            raise ConfigurationError(f"The file {path} to import does not exist.", next_step="Check the path.")
    return list(dict.fromkeys(files))


def read(path: Path, on_progress: BytesCallback) -> Iterator[Document | Reject]:
    """Yield the documents of a file, in order."""
    place = Place(str(path))
    try:
        with path.open("rb") as raw:
            decompressed = _decompress(raw)
            for item in _documents(decompressed, place):
                on_progress(raw.tell())
                yield item
            on_progress(raw.tell())
    except (OSError, EOFError, zlib.error) as error:
        # The documents before the truncated end of a gzip file have been yielded already.
        yield Reject(place, "unreadable_file", str(error), "a file that can be read to its end")


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def _decompress(raw: io.BufferedReader) -> io.BufferedReader:
    is_gzip = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    raw.seek(0)
    return io.BufferedReader(gzip.GzipFile(fileobj=raw)) if is_gzip else raw


def _documents(source: io.BufferedReader, place: Place) -> Iterator[Document | Reject]:
    # A newline is also the first byte of a protobuf request, so the first byte after white space decides.
    line_number = 1
    while (beginning := source.peek()) and not beginning.strip():
        line_number += source.read(len(beginning)).count(b"\n")
    if not beginning:
        yield Reject(place, "empty_file", "nothing", "at least one document", items=0)
        return
    if not beginning.lstrip().startswith((b"{", b"[")):
        yield from _protobuf(source, place)
        return
    while not (first := source.readline(DOCUMENT_LIMIT_BYTES + 1)).strip():
        line_number += 1
    if _is_json_line(first):
        yield from _json_lines(first, line_number, source, place)
    else:
        yield from _json_texts(first, line_number, source, place)


def _is_json_line(line: bytes) -> bool:
    """Return whether the line is one JSON value, or several values, which is a broken line of JSONL."""
    try:
        json.loads(line)
    except RecursionError:
        return True
    except ValueError:
        # A broken first line of JSONL ends like an object; the first line of a printed document does not.
        text = line.strip()
        return len(text) > 1 and text.startswith(b"{") and text.endswith(b"}")
    return True


def _json_lines(first: bytes, line_number: int, source: io.BufferedReader, place: Place) -> Iterator[Document | Reject]:
    line = first
    while line:
        here = place._replace(line=line_number)
        if len(line) > DOCUMENT_LIMIT_BYTES:
            yield Reject(here, "too_large", "a longer line", _TOO_LARGE)
            while line and not line.endswith(b"\n"):
                line = source.readline(DOCUMENT_LIMIT_BYTES)
        elif line.strip():
            yield _json(line, here)
        line, line_number = source.readline(DOCUMENT_LIMIT_BYTES + 1), line_number + 1


def _json(line: bytes, here: Place) -> Document | Reject:
    try:
        return Document(here, json.loads(line))
    except (ValueError, RecursionError) as error:
        return Reject(here, "not_json", f"{line[:60]!r}: {error}", "one JSON object a line")


def _json_texts(first: bytes, line_number: int, source: io.BufferedReader, place: Place) -> Iterator[Document | Reject]:
    """Yield concatenated documents, each of several lines."""
    content = first + source.read(DOCUMENT_LIMIT_BYTES)
    if source.read(1):
        yield Reject(place, "too_large", "a larger file", f"{_TOO_LARGE}, or one JSON object a line")
        return
    text = content.decode("utf-8", "replace")
    offset, line = 0, line_number
    while offset < len(text):
        if text[offset].isspace():
            line += text[offset] == "\n"
            offset += 1
            continue
        here = place._replace(line=line)
        try:
            value, end = _DECODER.raw_decode(text, offset)
        except (ValueError, RecursionError) as error:
            yield Reject(here, "not_json", f"{text[offset : offset + 60]!r}: {error}", "a JSON document")
            return
        yield Document(here, value)
        line += text.count("\n", offset, end)
        offset = end


def _protobuf(source: io.BufferedReader, place: Place) -> Iterator[Document | Reject]:
    body = source.read(DOCUMENT_LIMIT_BYTES)
    if source.read(1):
        yield Reject(place, "too_large", "a larger file", _TOO_LARGE)
    elif body[0] == _FIRST_FIELD:
        yield Document(place, body)
    else:
        yield from _length_prefixed(body, place)


def _length_prefixed(body: bytes, place: Place) -> Iterator[Document | Reject]:
    """Yield requests that follow their lengths, as written by the OpenTelemetry Collector's file exporter."""
    offset, index = 0, 0
    while offset < len(body):
        start = offset + _LENGTH_BYTES
        end = start + int.from_bytes(body[offset:start], "big")
        here = place._replace(item=f"request[{index}]")
        if not start <= end <= len(body) or (end > start and body[start] != _FIRST_FIELD):
            expected = (
                "OTLP as JSON or protobuf (one request, or requests with 4-byte lengths), the SDK's JSON, or JSONL"
            )
            yield Reject(here if index else place, "unknown_format", repr(body[offset : offset + 16]), expected)
            return
        if end > start:
            yield Document(here, body[start:end])
        offset, index = end, index + 1

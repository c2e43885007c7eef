"""Files → documents: one JSON value, or one protobuf request, with its place.

A file is read line by line when its first line is a whole JSON value, so its size does not matter then; otherwise as
a whole (one document, an array, or printed documents one after the other, as the SDK's console exporters leave them).

Invariant: whatever a file holds, every part of it becomes a document or a `Reject` with its place.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.semconv.errors import ConfigurationError

from .report import Place, Reject

SUFFIXES: Final = frozenset({".json", ".jsonl", ".ndjson", ".pb", ".binpb", ".bin", ".otlp", ".proto"})
"""Of the files that are taken out of a folder, each also with ``.gz`` behind it."""

DOCUMENT_LIMIT_BYTES: Final = 256 * 2**20
"""Most bytes of a line, or of a file that is no JSONL, after decompression."""

_DECODER: Final = json.JSONDecoder()
_GZIP_MAGIC: Final = b"\x1f\x8b"
_LENGTH_BYTES: Final = 4
_FIRST_FIELD: Final = 0x0A
_TOO_LARGE: Final = f"at most {DOCUMENT_LIMIT_BYTES // 2**20} MiB"


class Document(NamedTuple):
    """One JSON value, or one protobuf request (``bytes``)."""

    place: Place
    content: object


Progress = Callable[[int], None]
"""Told the bytes of the file that were read so far."""


def find(paths: Sequence[Path]) -> list[Path]:
    """The files to read: those that are named, and of folders everything below with a known suffix, sorted.

    Raises:
        ConfigurationError: A path does not exist, or a folder holds nothing to read.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.is_file() and _suffix(each) in SUFFIXES)
            if not inside:
                raise ConfigurationError(
                    f"The folder {path} holds no file to import.",
                    next_step=f"Files end with one of {', '.join(sorted(SUFFIXES))}, or the same and .gz; "
                    "name a file of another suffix itself.",
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise ConfigurationError(f"There is no file {path} to import.", next_step="Check the path.")
    return list(dict.fromkeys(found))


def read(path: Path, progress: Progress) -> Iterator[Document | Reject]:
    """The documents of one file, in their order."""
    place = Place(str(path))
    try:
        with path.open("rb") as raw:
            unpacked = _decompress(raw)
            for found in _documents(unpacked, place):
                progress(raw.tell())
                yield found
            progress(raw.tell())
    except (OSError, EOFError, zlib.error) as error:
        # What came before a broken end of a gzip file has been given out already.
        yield Reject(place, "unreadable_file", str(error), "a file that can be read to its end")


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix == ".gz" else path.suffix


def _decompress(raw: io.BufferedReader) -> io.BufferedReader:
    is_gzip = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    raw.seek(0)
    return io.BufferedReader(gzip.GzipFile(fileobj=raw)) if is_gzip else raw


def _documents(source: io.BufferedReader, place: Place) -> Iterator[Document | Reject]:
    # A newline is also the first byte of a protobuf request, so what follows the white space decides.
    number = 1
    while (beginning := source.peek()) and not beginning.strip():
        number += source.read(len(beginning)).count(b"\n")
    if not beginning:
        yield Reject(place, "empty_file", "nothing", "at least one document", items=0)
        return
    if not beginning.lstrip().startswith((b"{", b"[")):
        yield from _protobuf(source, place)
        return
    while not (first := source.readline(DOCUMENT_LIMIT_BYTES + 1)).strip():
        number += 1
    if _is_json_line(first):
        yield from _json_lines(first, number, source, place)
    else:
        yield from _concatenated(first, number, source, place)


def _is_json_line(line: bytes) -> bool:
    """Whether the line is one JSON value; also when more than one stand on it, which is no JSON."""
    try:
        json.loads(line)
    except RecursionError:
        return True
    except ValueError:
        # A first line of JSONL that is broken ends like a value; the first line of a printed document does not.
        text = line.strip()
        return len(text) > 1 and text.startswith(b"{") and text.endswith(b"}")
    return True


def _json_lines(first: bytes, number: int, source: io.BufferedReader, place: Place) -> Iterator[Document | Reject]:
    line = first
    while line:
        here = place._replace(line=number)
        if len(line) > DOCUMENT_LIMIT_BYTES:
            yield Reject(here, "too_large", "a longer line", _TOO_LARGE)
            while line and not line.endswith(b"\n"):
                line = source.readline(DOCUMENT_LIMIT_BYTES)
        elif line.strip():
            yield _json(line, here)
        line, number = source.readline(DOCUMENT_LIMIT_BYTES + 1), number + 1


def _json(line: bytes, here: Place) -> Document | Reject:
    try:
        return Document(here, json.loads(line))
    except (ValueError, RecursionError) as error:
        return Reject(here, "not_json", f"{line[:60]!r}: {error}", "one JSON object a line")


def _concatenated(first: bytes, number: int, source: io.BufferedReader, place: Place) -> Iterator[Document | Reject]:
    """Documents one after the other, each over many lines."""
    content = first + source.read(DOCUMENT_LIMIT_BYTES)
    if source.read(1):
        yield Reject(place, "too_large", "a larger file", f"{_TOO_LARGE}, or one JSON object a line")
        return
    text = content.decode("utf-8", "replace")
    at, line = 0, number
    while at < len(text):
        if text[at].isspace():
            line += text[at] == "\n"
            at += 1
            continue
        here = place._replace(line=line)
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            yield Reject(here, "not_json", f"{text[at : at + 60]!r}: {error}", "a JSON document")
            return
        yield Document(here, value)
        line += text.count("\n", at, end)
        at = end


def _protobuf(source: io.BufferedReader, place: Place) -> Iterator[Document | Reject]:
    body = source.read(DOCUMENT_LIMIT_BYTES)
    if source.read(1):
        yield Reject(place, "too_large", "a larger file", _TOO_LARGE)
    elif body[0] == _FIRST_FIELD:
        yield Document(place, body)
    else:
        yield from _length_prefixed(body, place)


def _length_prefixed(body: bytes, place: Place) -> Iterator[Document | Reject]:
    """Requests with their lengths before them, as the OpenTelemetry Collector's file exporter writes them."""
    at, number = 0, 0
    while at < len(body):
        start = at + _LENGTH_BYTES
        end = start + int.from_bytes(body[at:start], "big")
        here = place._replace(item=f"request[{number}]")
        if not start <= end <= len(body) or (end > start and body[start] != _FIRST_FIELD):
            expected = (
                "OTLP as JSON or protobuf (one request, or requests with 4-byte lengths), the SDK's JSON, or JSONL"
            )
            yield Reject(here if number else place, "unknown_format", repr(body[at : at + 16]), expected)
            return
        if end > start:
            yield Document(here, body[start:end])
        at, number = end, number + 1

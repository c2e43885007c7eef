"""Readers of tasks: one module each, one line in `READER_POINT`.

A source is a path, whose ending or kind chooses the reader, or ``READER:SOURCE``. A package offers a reader by an entry
point of the group ``spanloop.task_readers``: a `Reader`, or a callable from a source to records, which are mappings.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, cast

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.plugins import ExtensionPoint, adapt_callable

from .base import ReadContext, Reader, Record, unreadable


def reader_of_callable(function: Callable[..., object], what: str) -> type[Reader]:
    """Return the class of a callable from a source to records."""
    return adapt_callable(function, Reader, method="read", arguments=("source",), what=what)


READER_POINT: Final = ExtensionPoint[Reader](
    what="task reader",
    group="spanloop.task_readers",
    base=Reader,
    built_in={
        "jsonl": f"{__name__}.jsonl:JsonlReader",
        "csv": f"{__name__}.csv_file:CsvReader",
        "parquet": f"{__name__}.parquet:ParquetReader",
        "huggingface": f"{__name__}.huggingface:HuggingFaceReader",
        "stored-traces": f"{__name__}.stored_traces:StoredTracesReader",
        "reasoning-gym": f"{__name__}.reasoning_gym:ReasoningGymReader",
    },
    adapt=reader_of_callable,
)
_BY_SUFFIX: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_COMPRESSED: Final = ".gz"

Read = Callable[[ReadContext], Iterator[Record]]


def find_reader(source: str, name: str, options: Mapping[str, str]) -> Read:
    """Return what reads ``source``.

    Args:
        source: A path, or ``READER:SOURCE``.
        name: The reader's name, or ``module:name``; empty chooses by ``source``.
        options: The reader's options.

    Raises:
        ConfigurationError: Nothing reads it, or an option is unknown, missing or invalid.
    """
    name, place = (name, source) if name else _choose(source)
    return partial(_read, READER_POINT.find(name, options), name, place)


def _choose(source: str) -> tuple[str, str]:
    path = Path(source).expanduser()
    if path.is_dir():
        return "huggingface", source
    suffix = Path(path.stem).suffix if path.suffix == _COMPRESSED else path.suffix
    if path.exists() or "/" in source.partition(":")[0] or ":" not in source:
        if suffix.lower() in _BY_SUFFIX:
            return _BY_SUFFIX[suffix.lower()], source
        known = ", ".join(_BY_SUFFIX)
        raise unreadable(source, f"nothing says what it is (known endings: {known})", "Name it with --reader.")
    name, _, place = source.partition(":")
    return name, place


def _read(reader: Reader, name: str, place: str, context: ReadContext) -> Iterator[Record]:
    number = 0
    try:
        for number, item in enumerate(reader.read(place, context), start=1):
            yield item if isinstance(item, Record) else Record(f"{name}:{number}", _fields(item))
    except SpanloopError:
        raise  # the source cannot be read at all
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the border to a user's code: what it yielded before stays
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        why = f"task reader {name!r} raised {cause}; it had read {number:,} records, and the rest is not read"
        yield Record(f"{name}:{number + 1}", why, ends_source=True)


def _fields(item: object) -> Mapping[str, object] | str:
    is_record = isinstance(item, Mapping)
    return cast("Mapping[str, object]", item) if is_record else f"expected named fields, got {item!r:.60}"

"""Readers of tasks: one module each, one line in `READERS`.

A source is a path, whose ending or kind chooses the reader, or ``READER:SOURCE``. A package offers a reader by an entry
point of the group ``spanloop.task_readers``: a callable from source and options to records, which are mappings.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, cast

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import find_extension

from ..options import with_options
from .base import ReadContext, Reader, Record, unreadable
from .csv_file import CsvReader
from .huggingface import HuggingFaceReader
from .jsonl import JsonlReader
from .parquet import ParquetReader
from .reasoning_gym import ReasoningGymReader
from .stored_traces import StoredTracesReader

GROUP: Final = "spanloop.task_readers"
READERS: Final[Mapping[str, type[Reader]]] = {
    "jsonl": JsonlReader,
    "csv": CsvReader,
    "parquet": ParquetReader,
    "huggingface": HuggingFaceReader,
    "stored-traces": StoredTracesReader,
    "reasoning-gym": ReasoningGymReader,
}
_BY_SUFFIX: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_COMPRESSED: Final = ".gz"

Read = Callable[[ReadContext], Iterator[Record]]
CustomReader = Callable[[str, Mapping[str, str]], Iterable[object]]
"""From a source and options to records, which are mappings."""


def find_reader(source: str, name: str, options: Mapping[str, str]) -> Read:
    """Return what reads ``source``.

    Args:
        source: A path, or ``READER:SOURCE``.
        name: The reader's name; empty chooses by ``source``.
        options: The reader's options.

    Raises:
        ConfigurationError: Nothing reads it, or an option is unknown or invalid.
    """
    name, place = (name, source) if name else _choose(source)
    kind = READERS.get(name)
    if kind is not None:
        return partial(with_options(kind, options, f"task reader {name!r}").read, place)
    custom = find_extension(name, group=GROUP, what="task reader", built_in=READERS)
    if not callable(custom):
        raise ConfigurationError(
            f"Task reader {name!r} is {type(custom).__name__}, expected a callable from source and options to records.",
            next_step="See docs/how-to/extend.md for the form of a task reader.",
        )
    return partial(_read_custom, cast("CustomReader", custom), name, place, options)


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


def _read_custom(
    custom: CustomReader, name: str, place: str, options: Mapping[str, str], _: ReadContext
) -> Iterator[Record]:
    number = 0
    try:
        for number, fields in enumerate(custom(place, options), start=1):
            is_record = isinstance(fields, Mapping)
            found = cast("Mapping[str, object]", fields) if is_record else f"expected named fields, got {fields!r:.60}"
            yield Record(f"{name}:{number}", found)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the border to a user's code: what it yielded before stays
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        why = f"task reader {name!r} raised {cause}; it had read {number:,} records, and the rest is not read"
        yield Record(f"{name}:{number + 1}", why, ends_source=True)

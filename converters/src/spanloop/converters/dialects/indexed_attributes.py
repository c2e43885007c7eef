"""Lists that stand flattened in indexed attributes (``gen_ai.prompt.0.role``), read for all rows of a batch at once.

Agents send their whole history with every call, so that most of what stands there was seen before. Invariant: every
distinct entry of a batch is read once, however many rows repeat it, and a row's entries are what its attributes say.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from spanloop.messages.json_values import Fields, as_fields, as_list

from ..reading.attributes import Attributes, Mask, Rows
from .base import IndexedList

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER: Final = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT: Final = np.uint64(29)
_MOST: Final = 2**62
"""Greater indexes than this are one."""


class Lists(NamedTuple):
    """The list of each row of a batch."""

    starts: Sequence[int]
    """Where the entries of each row begin in ``entries``; the end is last."""
    entries: Sequence[int]
    """Numbers of ``read``, by row and then by index."""
    read: Sequence[Any]
    """Distinct entries, as ``IndexedList.read`` gave them; None for what is no object."""
    is_gapless: Mask
    """Whether the indexes of each row run from 0 without a gap."""

    def of(self, row: int) -> list[Any]:
        """The entries of ``row`` in order."""
        entries = map(self.read.__getitem__, self.entries[self.starts[row] : self.starts[row + 1]])
        return [entry for entry in entries if entry is not None]


def lists_of(attributes: Attributes, is_read: Mask, indexed: IndexedList) -> Lists | None:
    """The lists of the ``is_read`` rows; others have none. None where no row has one.

    Args:
        attributes: Of all rows.
        is_read: Which of them are meant.
        indexed: What is looked for.
    """
    left, lists = is_read, None
    for prefix in indexed.prefixes:
        of_prefix = _lists(attributes, left, prefix, indexed)
        if of_prefix is not None:
            lists = of_prefix if lists is None else _either(lists, of_prefix)
            left = left & (np.diff(lists.starts) == 0)
    return lists


def keys_of(attributes: Attributes, indexed: IndexedList) -> Mask:
    """Whether each distinct key belongs to the list."""
    starts = tuple(prefix + "." for prefix in indexed.prefixes)
    return np.array(
        [key.startswith(starts) and _split(key, starts)[0].isdigit() for key in attributes.keys], dtype=np.bool_
    )


def _split(key: str, starts: tuple[str, ...]) -> tuple[str, str]:
    """Index and path of a key that begins with one of ``starts``."""
    start = next(start for start in starts if key.startswith(start))
    index, _, path = key[len(start) :].partition(".")
    return index, path


def _either(first: Lists, other: Lists) -> Lists:
    """Both, of which no row has entries in both."""
    rows = np.concatenate([np.repeat(np.arange(len(one.starts) - 1), np.diff(one.starts)) for one in (first, other)])
    order = np.argsort(rows, kind="stable")
    entries = np.concatenate([first.entries, np.add(other.entries, len(first.read))])[order]
    return Lists(
        np.add(first.starts, other.starts).tolist(),
        entries.tolist(),
        [*first.read, *other.read],
        first.is_gapless & other.is_gapless,
    )


def _lists(attributes: Attributes, is_read: Mask, prefix: str, indexed: IndexedList) -> Lists | None:
    start = prefix + "."
    parts = {
        code: (int(index), index, path)
        for code, key in enumerate(attributes.keys)
        if key.startswith(start)
        for index, path in [_split(key, (start,))]
        if index.isascii() and index.isdigit()
    }
    if not parts:
        return None
    indexes = {
        index_text: rank for rank, index_text in enumerate(sorted({index_text[:2] for index_text in parts.values()}))
    }
    paths = {path: number for number, path in enumerate(dict.fromkeys(path for _, _, path in parts.values()))}
    ranks = np.full(len(attributes.keys), -1, dtype=np.int64)
    fields = np.zeros(len(attributes.keys), dtype=np.int64)
    for code, (number, index, path) in parts.items():
        ranks[code], fields[code] = indexes[number, index], paths[path]
    places = np.flatnonzero((ranks >= 0)[attributes.codes] & is_read[attributes.rows])
    if not len(places):
        return None
    codes = attributes.codes[places]
    keys = attributes.rows[places] * len(indexes) + ranks[codes]
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        places, codes, keys = places[order], codes[order], keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    values = attributes.values[pl.Series(places, dtype=pl.UInt32)]
    values = values.fill_null("") if values.null_count() else values
    entries = _Entries(starts, fields[codes], values)
    distinct, which = _distinct(entries)
    read = _read(entries, distinct, [path.split(".") if path else [] for path in paths], indexed)
    rows, places_in_row = keys[starts] // len(indexes), keys[starts] % len(indexes)
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=attributes.height))])
    expected = np.array([min(index, _MOST) for index, _ in sorted(indexes)], dtype=np.int64)[places_in_row]
    is_gapless = np.ones(attributes.height, dtype=np.bool_)
    is_gapless[rows[expected != np.arange(len(rows)) - ends[rows]]] = False
    return Lists(ends.tolist(), which.tolist(), read, is_gapless)


class _Entries(NamedTuple):
    """The entries of all rows: by row, then by index."""

    starts: Rows
    """Where the attributes of each begin in the following."""
    fields: npt.NDArray[np.int64]
    """The number of each attribute's path within its entry."""
    values: pl.Series


def _distinct(entries: _Entries) -> tuple[Rows, Rows]:
    """Distinct entries, and of each entry the distinct one that it equals.

    Equal 64-bit hashes of their values count as equal entries. Of a million entries with evenly spread hashes, two that
    differ would have the same in fewer than one of ten million batches (a calculation, by the birthday bound).
    """
    lengths = np.diff(entries.starts, append=len(entries.fields))
    positions = np.arange(len(entries.fields)) - np.repeat(entries.starts, lengths)
    hashes = entries.values.hash(seed=1).to_numpy() + entries.fields.astype(np.uint64) * _GOLDEN
    mixed = (hashes ^ (hashes >> _SHIFT)) * ((positions.astype(np.uint64) * _GOLDEN) | np.uint64(1))
    sums = np.add.reduceat(mixed ^ (mixed >> _SHIFT), entries.starts) * _MULTIPLIER
    _, first, which = np.unique(sums, return_index=True, return_inverse=True)
    return first, which


def _read(entries: _Entries, distinct: Rows, paths: Sequence[Sequence[str]], indexed: IndexedList) -> list[object]:
    """Return the result of ``indexed.read`` for each of the ``distinct`` entries."""
    lengths: Rows = np.diff(entries.starts, append=len(entries.fields))[distinct]
    ends: Rows = np.cumsum(lengths)
    places: Rows = np.arange(int(lengths.sum())) + np.repeat(entries.starts[distinct] - ends + lengths, lengths)
    values: list[str] = entries.values[pl.Series(places, dtype=pl.UInt32)].to_list()
    fields: list[int] = entries.fields[places].tolist()
    entries_read: list[object] = []
    templates: dict[tuple[int, ...], Fields | None] = {}
    start, bounds = 0, cast("list[int]", ends.tolist())
    for end in bounds:
        form = tuple(fields[start:end])
        if form not in templates:
            nested = _template([paths[number] for number in form])
            templates[form] = nested if any(key and not key.isdigit() for key in nested) else None
        template = templates[form]
        entries_read.append(None if template is None else indexed.read(_filled(template, values[start:end])))
        start = end
    return entries_read


def _template(paths: Sequence[Sequence[str]]) -> Fields:
    """``a.b`` and ``c.0.d`` → the object that they make, with the place of each among ``paths`` as its value."""
    template: Fields = {}
    for number, path in enumerate(paths):
        place = template
        for name in path[:-1]:
            below = place.get(name)
            if not isinstance(below, dict):
                below = place[name] = {} if below is None else {"": below}
            place = cast("Fields", below)
        last = path[-1] if path else ""
        if isinstance(place.get(last), dict):
            cast("Fields", place[last])[""] = number
        else:
            place[last] = number
    return {key: _listed(item) for key, item in template.items()}


def _listed(value: object) -> object:
    """Objects whose keys are all numbers, as lists; attribute paths are never deeper than a key is long."""
    if not isinstance(value, dict):
        return value
    fields = as_fields(cast("object", value))
    if fields and all(key.isascii() and key.isdigit() for key in fields):
        return [_listed(fields[key]) for key in sorted(fields, key=int)]
    return {key: _listed(item) for key, item in fields.items()}


def _filled(template: Fields, values: Sequence[str]) -> Fields:
    """A template with the values in their places."""
    return {
        key: values[item] if type(item) is int else _filled_item(item, values)  # an object's text is the rarer case
        for key, item in template.items()
    }


def _filled_item(item: object, values: Sequence[str]) -> object:
    if isinstance(item, int):
        return values[item]
    if isinstance(item, dict):
        return _filled(as_fields(cast("object", item)), values)
    return [_filled_item(inner, values) for inner in as_list(item)]

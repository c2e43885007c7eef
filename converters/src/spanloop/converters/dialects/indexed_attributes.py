"""Lists that stand flattened in indexed attributes (``gen_ai.prompt.0.role``), read for all rows of a batch at once.

Agents send their whole history with every call, so that most of what stands there was seen before. Invariant: every
distinct entry of a batch is read once, however many rows repeat it, and a row's entries are what its attributes say.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from spanloop.messages.json_values import Fields

from ..reading.attributes import Attributes, Mask, Rows
from .base import IndexedList

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER: Final = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT: Final = np.uint64(29)
_MOST: Final = 2**62
"""Greater indexes than this are one."""

_Path = tuple[Callable[[Fields], object], str]
"""The reader of a list, and a path within its entries: equal entries of lists with one reader are one."""


class Lists(NamedTuple):
    """The list of each row of a batch."""

    starts: Sequence[int]
    """Where the entries of each row begin in ``entries``; the end is last."""
    entries: Sequence[Any]
    """As ``IndexedList.read`` gave them, by row and then by index; None for what is no object."""
    is_gapless: Mask
    """Whether the indexes of each row run from 0 without a gap."""

    def of(self, row: int) -> list[Any]:
        """The entries of ``row`` in order."""
        return [entry for entry in self.entries[self.starts[row] : self.starts[row + 1]] if entry is not None]


class IndexedLists(NamedTuple):
    """The lists of a batch."""

    by_name: Mapping[str, Lists]
    """Without those that no row has entries of."""
    is_key: Mask
    """Whether each distinct key of the attributes belongs to a list."""


def lists_of(attributes: Attributes, is_read: Mask, indexed: Mapping[str, IndexedList]) -> IndexedLists:
    """The lists of the ``is_read`` rows, all read in one pass; other rows have none.

    Args:
        attributes: Of all rows.
        is_read: Which of them are meant.
        indexed: What is looked for.
    """
    prefixes = [(name, prefix) for name, each in indexed.items() for prefix in each.prefixes]
    listed = _listed_keys(attributes, prefixes)
    is_key = np.zeros(len(attributes.keys), dtype=np.bool_)
    is_key[list(listed)] = True
    keys = {code: key for code, key in listed.items() if key.index_text.isascii()}
    numbers = sorted({(int(key.index_text), key.index_text) for key in keys.values()})
    ranks = {number_and_text: rank for rank, number_and_text in enumerate(numbers)}
    paths: dict[_Path, int] = {}
    slots = np.full(len(attributes.keys), -1, dtype=np.int64)
    fields = np.zeros(len(attributes.keys), dtype=np.int64)
    for code, key in keys.items():
        slots[code] = key.prefix * len(ranks) + ranks[int(key.index_text), key.index_text]
        fields[code] = paths.setdefault((indexed[prefixes[key.prefix][0]].read, key.path), len(paths))
    places = np.flatnonzero((slots >= 0)[attributes.codes] & is_read[attributes.rows])
    if not len(places):
        return IndexedLists({}, is_key)
    codes = attributes.codes[places]
    order_keys = attributes.rows[places] * (len(prefixes) * len(ranks)) + slots[codes]
    if (order_keys[1:] < order_keys[:-1]).any():
        order = np.argsort(order_keys, kind="stable")
        places, codes, order_keys = places[order], codes[order], order_keys[order]
    starts = np.flatnonzero(np.diff(order_keys, prepend=-1))
    values = attributes.values[pl.Series(places, dtype=pl.UInt32)]
    values = values.fill_null("") if values.null_count() else values
    entries = _Entries(starts, fields[codes], values)
    distinct, which = _distinct(entries)
    read = _read(entries, distinct, list(paths))
    rows = attributes.rows[places[starts]]
    prefix_of_entry, rank_of_entry = np.divmod(slots[codes[starts]], len(ranks))
    indexes = np.array([min(number, _MOST) for number, _ in numbers], dtype=np.int64)[rank_of_entry]
    lists: dict[str, Lists] = {}
    for name in indexed:
        of_name = np.array([owner == name for owner, _ in prefixes], dtype=np.bool_)
        chosen = _of_first_prefix(np.flatnonzero(of_name[prefix_of_entry]), rows, prefix_of_entry)
        if len(chosen):
            first_of_row = np.concatenate([[0], np.cumsum(np.bincount(rows[chosen], minlength=attributes.height))])
            is_gapless = _are_gapless(indexes[chosen], rows[chosen], first_of_row)
            lists[name] = Lists(first_of_row.tolist(), list(map(read.__getitem__, which[chosen].tolist())), is_gapless)
    return IndexedLists(lists, is_key)


def _are_gapless(indexes: Rows, rows: Rows, first_of_row: Rows) -> Mask:
    is_gapless = np.ones(len(first_of_row) - 1, dtype=np.bool_)
    is_gapless[rows[indexes != np.arange(len(rows)) - first_of_row[rows]]] = False
    return is_gapless


class _Key(NamedTuple):
    """The key of an attribute in a list."""

    prefix: int
    """Number among the prefixes."""
    index_text: str
    path: str
    """Within the entry; empty for an entry that is no object."""


def _listed_keys(attributes: Attributes, prefixes: Sequence[tuple[str, str]]) -> dict[int, _Key]:
    """The keys that stand in lists, by their numbers."""
    starts = [(number, prefix + ".") for number, (_, prefix) in enumerate(prefixes)]
    keys: dict[int, _Key] = {}
    for code, key in enumerate(attributes.keys):
        for number, start in starts:
            index, _, path = key[len(start) :].partition(".") if key.startswith(start) else ("", "", "")
            if index.isdigit():
                keys[code] = _Key(number, index, path)
                break
    return keys


def _of_first_prefix(entries: Rows, rows: Rows, prefixes: Rows) -> Rows:
    """Those of a list's ``entries`` (by row, then by prefix) that have the first prefix of which a row has any."""
    first = np.zeros(int(rows.max()) + 1, dtype=np.int64)
    first[rows[entries[::-1]]] = prefixes[entries[::-1]]
    chosen: Rows = entries[prefixes[entries] == first[rows[entries]]]
    return chosen


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


def _read(entries: _Entries, distinct: Rows, paths: Sequence[_Path]) -> list[object]:
    """Return what its reader makes of each of the ``distinct`` entries.

    Args:
        entries: The entries of all lists.
        distinct: Numbers of those that are read.
        paths: By number.
    """
    lengths: Rows = np.diff(entries.starts, append=len(entries.fields))[distinct]
    ends: Rows = np.cumsum(lengths)
    places: Rows = np.arange(int(lengths.sum())) + np.repeat(entries.starts[distinct] - ends + lengths, lengths)
    values: list[str] = entries.values[pl.Series(places, dtype=pl.UInt32)].to_list()
    fields: list[int] = entries.fields[places].tolist()
    entries_read: list[object] = []
    templates: dict[tuple[int, ...], dict[str, _Template] | None] = {}
    start, bounds = 0, cast("list[int]", ends.tolist())
    for end in bounds:
        form = tuple(fields[start:end])
        if form not in templates:
            nested = _template([paths[number][1].split(".") if paths[number][1] else [] for number in form])
            templates[form] = nested if any(key and not key.isdigit() for key in nested) else None
        template, read = templates[form], paths[form[0]][0]
        entries_read.append(None if template is None else read(_filled(template, values[start:end])))
        start = end
    return entries_read


_Template: TypeAlias = "int | dict[str, _Template] | list[_Template]"
"""An entry with the place of each value in the values' place."""


def _template(paths: Sequence[Sequence[str]]) -> dict[str, _Template]:
    """``a.b`` and ``c.0.d`` → the object that they make, with the place of each among ``paths`` as its value."""
    template: dict[str, _Template] = {}
    for number, path in enumerate(paths):
        place = template
        for name in path[:-1]:
            below = place.get(name)
            inner: dict[str, _Template] = below if isinstance(below, dict) else {} if below is None else {"": below}
            place[name] = place = inner
        last = path[-1] if path else ""
        if isinstance(below := place.get(last), dict):
            below[""] = number
        else:
            place[last] = number
    return {key: _listed(item) for key, item in template.items()}


def _listed(value: _Template) -> _Template:
    """Objects whose keys are all numbers, as lists; attribute paths are never deeper than a key is long."""
    if not isinstance(value, dict):
        return value
    if value and all(key.isascii() and key.isdigit() for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return {key: _listed(item) for key, item in value.items()}


def _filled(template: dict[str, _Template], values: Sequence[str]) -> Fields:
    """A template with the values in their places."""
    return {
        key: values[item] if type(item) is int else _filled_item(item, values)  # an object's text is the rarer case
        for key, item in template.items()
    }


def _filled_item(item: _Template, values: Sequence[str]) -> object:
    if isinstance(item, dict):
        return _filled(item, values)
    return values[item] if isinstance(item, int) else [_filled_item(inner, values) for inner in item]

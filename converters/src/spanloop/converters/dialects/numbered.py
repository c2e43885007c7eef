"""Lists that stand flattened in numbered attributes (``gen_ai.prompt.0.role``), put together for all rows at once.

Agents send their whole history with every call, so that most of what stands there was seen before: every distinct entry
is read once, however many rows repeat it. Invariant: a row has what ``unflatten`` and the same reading of its
entries, one by one, would give it; what cannot be told that way is ``is_odd``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from ..attributes import Attributes, Mask, Rows
from ..chat_forms import Fields
from ..ragged import compact, joined, ragged

_MOST: Final = 2**31
"""Greater numbers than this count nothing."""

_FEW: Final = 2**16
"""Numbers below this are sorted by radix."""

_FEW_NEW: Final = 0.5
"""Rows of which less than this is new are those of agents that send their history: hashing all of it finds no more."""

_ESCAPED: Final = "\\ud"
"""How lone surrogates are written: a list that holds one is escaped as a whole."""


class Entry(NamedTuple):
    """One entry of a list."""

    text: str
    """Its JSON; empty where nothing comes of it, several with commas between them where more does."""
    note: str = ""
    """What else is to be known of it; of a row the first that is not empty counts."""


@dataclass(frozen=True)
class Numbered:
    """A list in attributes ``prefix.N.…``.

    Attributes:
        prefix: What stands before the number.
        read: An entry out of the nested object that its attributes make; None for one that only makes sense among the
            others.
        is_gapless: Whether a row's numbers have to run from 0 without a gap; it is odd else.
    """

    prefix: str
    read: Callable[[Fields], Entry | None]
    is_gapless: bool = False
    usual: tuple["Usual", ...] = ()


class Usual(NamedTuple):
    """Entries of a kind that is read all at once, in columns named for the paths of their attributes."""

    paths: tuple[str, ...]
    """Exactly those that such an entry has."""
    is_it: pl.Expr
    value: pl.Expr
    """What JSON is made of."""
    note: pl.Expr
    told: tuple[pl.Expr, ...]
    """The columns ``TOLD``; the first is null where whoever wants to know has to read the JSON."""


TOLD: Final = pl.Schema({"role": pl.String(), "content": pl.String(), "id": pl.String()})
"""What a message says in one part: text, or what a tool answered to the call of an id."""

ENTRIES: Final = pl.Schema({"text": pl.String(), "note": pl.String(), **TOLD})
"""Columns of distinct entries: see ``Entry`` and ``TOLD``."""


class Listed(NamedTuple):
    """One value a row."""

    text: pl.Series
    """The JSON list; empty where the row has no entries, ``[]`` where nothing comes of them."""
    note: pl.Series
    """The first note; empty without one."""
    is_odd: Mask
    numbers: pl.Series
    """The ``entries`` of each row; null where it has none, or one of which ``TOLD`` does not tell."""
    entries: pl.DataFrame
    """The distinct ones, in columns ``ENTRIES``."""


class _Entries(NamedTuple):
    """The entries of all rows: by row, then by number."""

    rows: Rows
    numbers: Rows
    starts: Rows
    """Where the attributes of each begin in the following."""
    fields: npt.NDArray[np.int64]
    """The number of each attribute's path within its entry."""
    values: pl.Series


def listed(attributes: Attributes, wanted: Mask, numbered: Numbered, first: int = 0) -> Listed | None:
    """The lists of the ``wanted`` rows; others have none. None where no row has one.

    Args:
        attributes: Of all rows.
        wanted: Which of them are meant.
        numbered: What is looked for.
        first: The number of the first of the distinct entries.
    """
    start = numbered.prefix + "."
    paths: dict[str, int] = {}
    numbers = np.full(len(attributes.keys), -1, dtype=np.int64)
    fields = np.zeros(len(attributes.keys), dtype=np.int64)
    odd_keys = np.zeros(len(attributes.keys), dtype=np.bool_)
    for code, key in enumerate(attributes.keys):
        if key.startswith(start):
            number, _, path = key[len(start) :].partition(".")
            if number.isascii() and number.isdigit():
                odd_keys[code] = not path or len(number) > len(str(int(number))) or int(number) >= _MOST
                numbers[code] = -1 if odd_keys[code] else int(number)
                fields[code] = paths.setdefault(path, len(paths))
            else:
                odd_keys[code] = number.isdigit()
    if not paths:
        return None
    is_odd = attributes.repeated & wanted
    if odd_keys.any():
        is_odd |= attributes.rows_with(odd_keys[attributes.codes])
    places = np.flatnonzero((numbers >= 0)[attributes.codes] & (wanted & ~is_odd)[attributes.rows])
    entries = _entries(attributes, places, numbers, fields)
    if numbered.is_gapless:
        last = np.flatnonzero(np.diff(entries.rows, append=-1))
        is_odd[entries.rows[last[entries.numbers[last] + 1 != np.diff(last, prepend=-1)]]] = True
    return _joined(entries, is_odd, numbered, list(paths), first)


def _entries(attributes: Attributes, places: Rows, numbers: Rows, fields: Rows) -> _Entries:
    codes = attributes.codes[places]
    keys = attributes.rows[places] * _MOST + numbers[codes]
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        places, codes, keys = places[order], codes[order], keys[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(keys), 1), dtype=np.bool_), keys[1:] != keys[:-1]]))
    values = attributes.values.gather(pl.Series(places, dtype=pl.UInt32)).fill_null("")
    return _Entries(attributes.rows[places[starts]], numbers[codes[starts]], starts, fields[codes], values)


def _joined(entries: _Entries, is_odd: Mask, numbered: Numbered, paths: Sequence[str], first: int) -> Listed:
    height = len(is_odd)
    distinct, which, is_unclear = _distinct(entries)
    read, places = _read(entries, distinct, paths, numbered)
    which = places[which]
    texts = read["text"].fill_null("")
    is_odd[entries.rows[is_unclear | read["text"].is_null().to_numpy()[which]]] = True
    told = np.flatnonzero((texts != "").to_numpy()[which])
    rows, numbers = entries.rows[told], which[told].astype(np.uint32)
    text, own = _in_brackets(texts, rows, numbers)
    found = np.zeros(height, dtype=np.uint32)
    found[entries.rows] = 1
    found[own] = np.arange(2, len(own) + 2)
    is_known = np.zeros(height, dtype=np.bool_)
    is_known[rows] = True
    is_known[rows[read["role"].is_null().to_numpy()[numbers]]] = False
    counts = np.bincount(rows, minlength=height) if len(rows) else np.zeros(height, dtype=np.int64)
    lists_of_numbers = ragged(numbers + np.uint32(first), counts)
    return Listed(
        pl.concat([_NO_LISTS, text], rechunk=True).gather(pl.Series(found)),
        _notes(height, entries.rows, read["note"].fill_null(""), which),
        is_odd,
        pl.select(pl.when(pl.Series(is_known)).then(lists_of_numbers)).to_series(),
        read,
    )


def _in_brackets(texts: pl.Series, rows: Rows, numbers: npt.NDArray[np.uint32]) -> tuple[pl.Series, Rows]:
    """The JSON list of each of the ``rows``, out of those of ``texts`` that its ``numbers`` name; and each row once."""
    opening, comma, closing = range(texts.len(), texts.len() + len(_MARKS))
    is_first = np.diff(rows, prepend=-1) != 0
    places = 2 * np.arange(len(rows)) + np.cumsum(is_first) - 1
    firsts = np.flatnonzero(is_first)
    counts = np.diff(firsts, append=len(rows))
    pieces = np.full(2 * len(rows) + len(firsts), closing, dtype=np.uint32)
    pieces[places] = np.where(is_first, opening, comma)
    pieces[places + 1] = numbers
    return joined(pl.concat([texts, _MARKS], rechunk=True).gather(pl.Series(pieces)), 2 * counts + 1), rows[firsts]


_MARKS: Final = pl.Series(["[", ",", "]"], dtype=pl.String)
_NO_LISTS: Final = pl.Series(["", "[]"], dtype=pl.String)


def _notes(height: int, rows: Rows, notes: pl.Series, which: Rows) -> pl.Series:
    told = pl.concat([pl.Series([""], dtype=pl.String), notes])
    places = np.flatnonzero((told != "").to_numpy()[1 + which])[::-1]
    found = np.zeros(height, dtype=np.uint32)
    found[rows[places]] = 1 + which[places]
    return told.gather(pl.Series(found))


def _distinct(entries: _Entries) -> tuple[Rows, Rows, Mask]:
    """Distinct entries, of each entry the distinct one that it equals, and those of which that is unclear.

    A row mostly begins with all that the row before it has. Where that is so, what is left is looked at as it is, else
    it is looked up among all others.
    """
    if not len(entries.rows):
        return entries.starts, entries.starts, np.zeros(0, dtype=np.bool_)
    leader = _leaders(entries)
    is_new = leader == np.arange(len(leader))
    new = np.flatnonzero(is_new)
    place = (np.cumsum(is_new) - 1)[leader]
    if len(new) < _FEW_NEW * len(leader):
        return new, place, np.zeros(len(leader), dtype=np.bool_)
    lengths = np.diff(entries.starts, append=len(entries.fields))
    is_kept = np.repeat(is_new, lengths)
    starts = np.cumsum(lengths[new]) - lengths[new]
    values = entries.values.filter(pl.Series(is_kept))
    first, which, is_unclear = _looked_up(
        _Entries(entries.rows[new], entries.numbers[new], starts, entries.fields[is_kept], values)
    )
    return new[first], which[place], is_unclear[place]


def _leaders(entries: _Entries) -> Rows:
    """Of each entry the first of those that equal it at the same place of the row before, and the row before that."""
    begins = np.flatnonzero(np.diff(entries.rows, prepend=-1))
    count = len(entries.rows)
    sizes = np.diff(begins, append=count)
    row = np.repeat(np.arange(len(begins)), sizes)
    place = np.arange(count) - begins[row]
    before = np.minimum(begins[row - 1] + place, count - 1)
    lengths = np.diff(entries.starts, append=len(entries.fields))
    is_same = (row > 0) & (place < sizes[row - 1]) & (lengths == lengths[before])
    moved = np.repeat(np.where(is_same, entries.starts - entries.starts[before], 0), lengths)
    other = np.arange(len(entries.fields)) - moved
    fits = (entries.values == entries.values.gather(pl.Series(other, dtype=pl.UInt32))).to_numpy()
    is_same &= np.logical_and.reduceat(fits & (entries.fields == entries.fields[other]), entries.starts)
    order = np.argsort(place.astype(np.uint16) if len(sizes) and sizes.max() < _FEW else place, kind="stable")
    runs = np.maximum.accumulate(np.where(is_same[order], 0, np.arange(count)))
    found = np.empty(count, dtype=np.int64)
    found[order] = order[runs]
    return found


def _looked_up(entries: _Entries) -> tuple[Rows, Rows, Mask]:
    """As ``_distinct``, each entry among all others."""
    starts, count = entries.starts, len(entries.fields)
    lengths = np.diff(starts, append=count)
    positions = np.arange(count) - np.repeat(starts, lengths)
    told = entries.values.hash(seed=1).to_numpy() + entries.fields.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (told ^ (told >> np.uint64(29))) * (
        positions.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9 & ~1) + np.uint64(1)
    )
    first, which = _alike(np.add.reduceat(mixed, starts))
    is_unclear = lengths[first[which]] != lengths
    doubtful = np.flatnonzero(~is_unclear & (first[which] != np.arange(len(which))))
    if len(doubtful):
        own = lengths[doubtful]
        ends = np.cumsum(own)
        within = np.arange(int(ends[-1])) - np.repeat(ends - own, own)
        here = np.repeat(starts[doubtful], own) + within
        there = np.repeat(starts[first[which[doubtful]]], own) + within
        values = (entries.values.gather(pl.Series(places, dtype=pl.UInt32)) for places in (here, there))
        fits = (
            np.equal(*(entries.fields[places] for places in (here, there))) & next(values).eq(next(values)).to_numpy()
        )
        is_unclear[doubtful] = ~np.logical_and.reduceat(fits, ends - own)
    return first, which, is_unclear


def _alike(values: npt.NDArray[np.uint64]) -> tuple[Rows, Rows]:
    """A place of each distinct value, and of each value the number of the distinct one."""
    order = np.argsort(values)
    ordered = values[order]
    is_new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    which = np.empty(len(values), dtype=np.int64)
    which[order] = np.cumsum(is_new) - 1
    return order[is_new], which


def _fields(entries: _Entries, distinct: Rows, paths: Sequence[str], prefix: str) -> list[list[Fields]]:
    """Of each of the ``distinct`` entries what its attributes make: one object, or none."""
    lengths: Rows = np.diff(entries.starts, append=len(entries.fields))[distinct]
    ends: Rows = np.cumsum(lengths)
    places: Rows = np.arange(int(lengths.sum())) + np.repeat(entries.starts[distinct] - ends + lengths, lengths)
    values: list[str] = entries.values.gather(pl.Series(places, dtype=pl.UInt32)).to_list()
    fields: list[int] = entries.fields[places].tolist()
    nested = {number for number, path in enumerate(paths) if "." in path or path.isdigit()}
    found: list[list[Fields]] = []
    at = 0
    sizes: list[int] = lengths.tolist()
    for length in sizes:
        own = fields[at : at + length]
        told = {paths[number]: value for number, value in zip(own, values[at : at + length], strict=True)}
        is_flat = not nested or nested.isdisjoint(own)
        found.append([{**told}] if is_flat else unflatten({f"{prefix}.0.{path}": told[path] for path in told}, prefix))
        at += length
    return found


def _read(entries: _Entries, distinct: Rows, paths: Sequence[str], numbered: Numbered) -> tuple[pl.DataFrame, Rows]:
    """The ``distinct`` entries in columns ``ENTRIES``, null where that is unclear, and where each of them stands."""
    known, places = _read_usual(entries, distinct, paths, numbered)
    rest = np.flatnonzero(places < 0)
    if not len(rest):
        return known, places
    read = [_read_one(fields, numbered) for fields in _fields(entries, distinct[rest], paths, numbered.prefix)]
    nothing = (None,) * len(TOLD)
    more = pl.DataFrame([(*(entry or (None, None)), *nothing) for entry in read], schema=ENTRIES, orient="row")
    places[rest] = np.arange(known.height, known.height + len(rest))
    return pl.concat([known, more], rechunk=True), places


def _read_usual(
    entries: _Entries, distinct: Rows, paths: Sequence[str], numbered: Numbered
) -> tuple[pl.DataFrame, Rows]:
    """Those of the ``distinct`` entries that are of a usual kind, and the place of each there; -1 for the others."""
    count = len(distinct)
    lengths: Rows = np.diff(entries.starts, append=len(entries.fields))[distinct]
    found: dict[str, Rows] = {}
    for path in {path for usual in numbered.usual for path in usual.paths if path in paths}:
        number = paths.index(path)
        found[path] = np.full(count, -1, dtype=np.int64)
        for position in range(int(lengths.max(initial=0))):
            own = np.flatnonzero(lengths > position)
            places = entries.starts[distinct[own]] + position
            is_it = entries.fields[places] == number
            found[path][own[is_it]] = places[is_it]
    read, height = [pl.DataFrame(schema=ENTRIES)], 0
    where = np.full(count, -1, dtype=np.int64)
    for usual in numbered.usual:
        if not found.keys() >= set(usual.paths):
            continue
        has_all = np.logical_and.reduce([found[path] >= 0 for path in usual.paths])
        own = np.flatnonzero(has_all & (lengths == len(usual.paths)))
        told = pl.DataFrame(
            [compact(entries.values.gather(pl.Series(found[path][own]))).alias(path) for path in usual.paths]
        )
        fits = told.select(usual.is_it).to_series()
        if not fits.all():
            told, own = told.filter(fits), own[fits.to_numpy()]
        where[own] = np.arange(height, height + len(own))
        height += len(own)
        text = usual.value.struct.json_encode().alias("text")
        more = [one.alias(name) for name, one in zip(TOLD, usual.told, strict=True)]
        read.append(told.select(text, usual.note.alias("note"), *more))
    return pl.concat(read, rechunk=True), where


def _read_one(fields: Sequence[Fields], numbered: Numbered) -> Entry | None:
    entry = numbered.read(fields[0]) if fields else None
    return None if entry is None or _ESCAPED in entry.text else entry


def unflatten(attributes: Mapping[str, str], prefix: str) -> list[Fields]:
    """``prefix.0.a.b``, ``prefix.1.a`` … → one nested object an index, in order; numbered keys become lists."""
    found: dict[str, object] = {}
    start = prefix + "."
    for key, value in attributes.items():
        if not key.startswith(start):
            continue
        *path, last = key[len(start) :].split(".")
        place = found
        for name in path:
            below = place.get(name)
            if not isinstance(below, dict):
                below = place[name] = {} if below is None else {"": below}
            place = cast("Fields", below)
        if isinstance(place.get(last), dict):
            cast("Fields", place[last])[""] = value
        else:
            place[last] = value
    return [cast("Fields", item) for item in _numbered(found) if isinstance(item, dict)]


def _numbered(found: Fields) -> list[object]:
    keys = sorted((key for key in found if key.isascii() and key.isdigit()), key=int)
    return [_listed(found[key]) for key in keys]


def _listed(value: object) -> object:
    """Objects whose keys are all numbers, as lists; attribute paths are never deeper than a key is long."""
    if not isinstance(value, dict):
        return value
    fields = cast("Fields", value)
    if fields and all(key.isascii() and key.isdigit() for key in fields):
        return _numbered(fields)
    return {key: _listed(item) for key, item in fields.items()}

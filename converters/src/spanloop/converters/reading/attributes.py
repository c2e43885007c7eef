"""Attributes, taken apart once: every key numbered, so that rules about keys look at each distinct key and no more.

Invariant: nothing is lost and nothing is moved; the attributes of a row stand behind one another in their order.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property
from itertools import compress
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_FEW: Final = 2**16
"""Numbers below this are sorted by radix."""


_NULL: Final = pl.Series([None], dtype=pl.String)


class Attributes:
    """All attributes of a column, one behind the other.

    Args:
        column: Of the type ``frames.STRING_ITEMS``, one list a row.
    """

    def __init__(self, column: pl.Series) -> None:
        lists = column.fill_null([]) if column.null_count() else column
        lengths = lists.list.len().to_numpy()
        items = lists.explode(empty_as_null=False).struct.unnest()
        keys, self.values = items["key"], items["value"]
        keys = keys.fill_null("") if keys.null_count() else keys
        known = keys.unique(maintain_order=True)
        self.height = column.len()
        """Number of rows."""
        self.keys: list[str] = known.to_list()
        """Every key once, by its number."""
        self.codes: npt.NDArray[np.uint32] = keys.cast(pl.Enum(known)).to_physical().cast(pl.UInt32).to_numpy()
        """The number of each attribute's key."""
        self.rows: Rows = np.repeat(np.arange(self.height), lengths)
        """The row of each attribute."""

    def only(self, is_meant: Callable[[str], bool]) -> "Attributes":
        """The attributes of the same rows whose keys are meant."""
        is_kept = np.fromiter(map(is_meant, self.keys), dtype=np.bool_, count=len(self.keys))
        places = np.flatnonzero(is_kept[self.codes])
        kept = copy(self)
        for cached in ("_number", "_values_and_null", "_by_key"):
            vars(kept).pop(cached, None)
        kept.values, kept.rows = self.values[pl.Series(places, dtype=pl.UInt32)], self.rows[places]
        kept.keys = list(compress(self.keys, is_kept))
        kept.codes = (np.cumsum(is_kept) - 1).astype(np.uint32)[self.codes[places]]
        return kept

    def __contains__(self, key: object) -> bool:
        return key in self._number

    def places(self, key: str) -> Rows:
        """Where ``key`` stands among the attributes, in their order."""
        number = self._number.get(key)
        if number is None:
            return np.empty(0, dtype=np.int64)
        order, ends = self._by_key
        return order[ends[number] : ends[number + 1]]

    def column(self, key: str, rows: npt.NDArray[Any] | None = None) -> pl.Series:
        """The value of ``key`` in each of ``rows``, else all: null without one, the last where there are several."""
        if key not in self._number:
            return _NULL.new_from_index(0, self.height if rows is None else len(rows))
        places = self.places(key)
        place_of_row = np.full(self.height, self.values.len(), dtype=np.uint32)
        place_of_row[self.rows[places]] = places
        return self._values_and_null[pl.Series(place_of_row if rows is None else place_of_row[rows])]

    def matching(self, is_meant: Callable[[str], bool]) -> Mask:
        """Whether the key of each attribute is meant; ``is_meant`` is asked once for each distinct one."""
        return np.fromiter(map(is_meant, self.keys), dtype=np.bool_, count=len(self.keys))[self.codes]

    def texts_at(self, places: Rows) -> list[str]:
        """The values of the attributes at ``places``; empty for null."""
        return self.values[pl.Series(places, dtype=pl.UInt32)].fill_null("").to_list()

    def rows_with(self, places: Mask | Rows) -> Mask:
        """Which rows have one of the attributes at ``places``."""
        has_attribute = np.zeros(self.height, dtype=np.bool_)
        has_attribute[self.rows[places]] = True
        return has_attribute

    def texts(self, rows: npt.NDArray[Any], without: Mask | None = None) -> Iterator[dict[str, str]]:
        """The attributes of each of ``rows`` as text: empty for null, of a repeated key the last.

        Args:
            rows: Which rows are meant.
            without: Whether each of ``keys`` is left out; none is if absent.
        """
        is_meant = np.zeros(self.height, dtype=np.bool_)
        is_meant[rows] = True
        places = np.flatnonzero(is_meant[self.rows] if without is None else is_meant[self.rows] & ~without[self.codes])
        values = self.texts_at(places)
        keys = list(map(self.keys.__getitem__, self.codes[places].tolist()))
        counts = np.bincount(self.rows[places], minlength=self.height)
        ends: list[int] = np.cumsum(counts)[rows].tolist()
        lengths: list[int] = counts[rows].tolist()
        for end, length in zip(ends, lengths, strict=True):
            yield dict(zip(keys[end - length : end], values[end - length : end], strict=True))

    def key_of(self, row: int, value: str) -> str:
        """The first attribute of ``row`` that holds ``value``; empty without one."""
        places: list[int] = np.flatnonzero(self.rows == row).tolist()
        codes: list[int] = self.codes[places].tolist()
        return next(
            (self.keys[code] for place, code in zip(places, codes, strict=True) if self.values[place] == value), ""
        )

    @cached_property
    def _number(self) -> dict[str, int]:
        return {key: number for number, key in enumerate(self.keys)}

    @cached_property
    def _values_and_null(self) -> pl.Series:
        return pl.concat([self.values, _NULL], rechunk=True)

    @cached_property
    def _by_key(self) -> tuple[Rows, npt.NDArray[Any]]:
        """The places of all attributes by key, and where those of each key begin; the end is last."""
        codes = self.codes.astype(np.uint16) if len(self.keys) <= _FEW else self.codes
        ends = np.concatenate([[0], np.cumsum(np.bincount(self.codes, minlength=len(self.keys)))])
        return np.argsort(codes, kind="stable"), ends

"""Read filters that a caller states: a page's address, its parameters, or a mapping of fields.

Invariant: what the pages filter by is what a client filters by, since both parse the same fields. A filter that is
unknown or malformed is an error, because a frame cannot show a warning.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from spanloop.dashboard.queries.lists import Cursor
from spanloop.dashboard.queries.sources import Source, parse_sort
from spanloop.dashboard.view_models.filters import FIELDS, LIST_PARAMETERS, Filters, parse_filters
from spanloop.foundation.errors import ConfigurationError

FilterValue: TypeAlias = str | int | float | Sequence[str]
FilterInput: TypeAlias = str | Mapping[str, FilterValue]
"""``"outcome=failure&time=7d"``, the address of a page, or ``{"outcome": "failure", "time": "7d"}``."""

_FIELDS: Final = tuple(field.name for field in FIELDS)
FILTER_NAMES: Final = ("time", "q", "match", *_FIELDS)


class Selection(NamedTuple):
    """What an address selects from a list."""

    filters: Filters
    sort: str
    """Empty for the list's own order."""
    cursor: Cursor | None


def read_filters(stated: FilterInput, *, zone: str = "UTC") -> Selection:
    """Read filters, the order and the place of an address or a mapping.

    Args:
        stated: The filters.
        zone: Time zone that says when today and yesterday began.

    Raises:
        ConfigurationError: A name or a value is unknown.
    """
    parameters: dict[str, list[str]] = {}
    for name, value in _pairs(stated):
        parameters.setdefault(name, []).append(value)
    if unknown := [name for name in parameters if name not in {*_FIELDS, *LIST_PARAMETERS}]:
        raise ConfigurationError(
            f"There is no filter {', '.join(unknown)}.", next_step=f"A filter is one of {', '.join(FILTER_NAMES)}."
        )
    filters = parse_filters(parameters, now=datetime.now(UTC), zone=zone)
    if filters.problems:
        raise ConfigurationError(f"A filter cannot be read: {'; '.join(filters.problems)}.")
    if parameters.get("match", ["part"]) != ["part"]:
        raise ConfigurationError(f"match is {parameters['match'][0]!r}; expected part, which also finds parts of words")
    return Selection(filters, next(iter(parameters.get("sort", ())), ""), _cursor(parameters))


def check_sort(source: Source, sort: str) -> str:
    """Return ``sort``. ConfigurationError: the list has no such column."""
    if parse_sort(source, sort) is None:
        raise ConfigurationError(
            f"The list cannot be sorted by {sort!r}.",
            next_step=f"Sort by one of {', '.join(source.sorts)}; a minus before it puts the largest first.",
        )
    return sort


def _cursor(parameters: Mapping[str, Sequence[str]]) -> Cursor | None:
    for name in ("before", "after"):
        for text in parameters.get(name, ()):
            return Cursor.parse(text, is_before=name == "before")
    return None


def _pairs(stated: FilterInput) -> Iterator[tuple[str, str]]:
    if isinstance(stated, str):
        is_address = "?" in stated or "/" in stated.partition("=")[0]
        query = urlsplit(stated).query if is_address else stated
        try:
            yield from parse_qsl(query, strict_parsing=bool(query))
        except ValueError as error:
            raise ConfigurationError(
                f"The filters {stated!r} cannot be read: {error}.",
                next_step="Give a page's address, name=value&name=value, or a mapping.",
            ) from error
        return
    for name, value in stated.items():
        if isinstance(value, str | int | float):
            yield name, f"{value}"
        else:
            yield from ((name, each) for each in value)

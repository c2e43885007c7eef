"""Named queries: one file each in ``queries/``, with a first comment line that says what it answers.

Invariant: a query is called with exactly the parameters that its text names, and values travel bound to the server,
never pasted into the text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Final, cast

from spanloop.semconv.errors import StoreError

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]\w*):([^{}]+)\}")
_COMMENT: Final = re.compile(r"--[^\n]*")
_ESCAPED: Final = re.compile(r"[\\'`\t\n]")
"""What the client escapes in a text that stands in a list."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A list of texts as the client writes it, who goes through them letter by letter: slow for thousands of ids."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class NamedQuery:
    """One ``.sql`` file.

    Attributes:
        name: The file's stem.
        sql: The text, comments included.
        parameters: ClickHouse type of each ``{name:Type}`` in it.
    """

    name: str
    sql: str
    parameters: Mapping[str, str]

    def bind(self, values: Mapping[str, object]) -> dict[str, object]:
        """The values in the form that the client sends, after checking that they are the ones the query names.

        Raises:
            StoreError: A parameter is missing or unknown, or its value has no ClickHouse form.
        """
        missing = [name for name in self.parameters if name not in values]
        unknown = [name for name in values if name not in self.parameters]
        if missing or unknown:
            expected = ", ".join(f"{name}: {kind}" for name, kind in self.parameters.items()) or "none"
            raise StoreError(
                f"Query {self.name!r} got the wrong parameters: missing {missing}, unknown {unknown}.",
                next_step=f"It takes {expected}.",
            )
        return {name: _encode(self.name, name, value) for name, value in values.items()}


def named_query(name: str) -> NamedQuery:
    """The query of that name.

    Raises:
        StoreError: There is none; the message lists those that there are.
    """
    try:
        return _catalogue()[name]
    except KeyError:
        raise StoreError(
            f"There is no query {name!r} in spanloop.store.",
            next_step=f"Use one of {', '.join(query_names())}, or add store/queries/{name}.sql.",
        ) from None


def query_names() -> Sequence[str]:
    """All names, sorted."""
    return sorted(_catalogue())


@cache
def _catalogue() -> Mapping[str, NamedQuery]:
    folder = files("spanloop.store") / "queries"
    return {
        entry.name.removesuffix(".sql"): parse(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }


def parse(name: str, sql: str) -> NamedQuery:
    """Read one file's text."""
    found = {match[1]: match[2].strip() for match in _PLACEHOLDER.finditer(_COMMENT.sub("", sql))}
    return NamedQuery(name, sql, found)


def _encode(query: str, parameter: str, value: object) -> object:
    if isinstance(value, Enum):
        return _encode(query, parameter, value.value)
    if isinstance(value, datetime):
        # The client's own form of a datetime drops the fraction of a second.
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return aware.strftime("%Y-%m-%d %H:%M:%S.%f")
    if value is None or isinstance(value, str | int | float | date):
        return value
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        texts = [item for item in items if type(item) is str]
        if items and len(texts) == len(items) and not _ESCAPED.search("".join(texts)):
            return _Written("['" + "', '".join(texts) + "']")
        return [_encode(query, parameter, item) for item in items]
    raise StoreError(
        f"Parameter {parameter!r} of query {query!r} is a {type(value).__name__}, which has no ClickHouse form.",
        next_step="Pass a str, int, float, bool, date, datetime, or a list of these.",
    )

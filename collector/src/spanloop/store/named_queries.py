"""Named queries: one file each in the folder ``queries/`` of the package that reads it.

A file's first comment line describes the result. A name is unique in all packages; where one is installed twice, the
first on the namespace's path counts, as with modules.

On a cluster, a query that joins tables, or has a subquery on another table in ``IN``, does so in one of two ways, which
its comment names: ``Joins: global`` (the subquery runs once, and its result goes to all shards) or ``Joins: local by
trace`` (each shard joins its rows, because equal traces are on one shard). ``System tables: of all shards`` names a
query that reads these from one server of each shard, ``of all servers`` from every server. On one server none of this
has an effect.

Invariant: a query is called with exactly the parameters that its text names. Values are sent as bound parameters and
are never inserted into the text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from spanloop.foundation.errors import StoreError

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]\w*):([^{}]+)\}")
_COMMENT: Final = re.compile(r"--[^\n]*")
_JOINS: Final = re.compile(r"^-- Joins: (global|local by [a-z ]+)\.$", re.MULTILINE)
_SYSTEM_TABLES: Final = re.compile(r"^-- System tables: of all (shards|servers)\.$", re.MULTILINE)
_ESCAPED: Final = re.compile(r"[\\'`\t\n]")
"""Characters that the client escapes in a string within a list."""


@dataclass(frozen=True, slots=True)
class _FormattedList:
    """A list of strings in the client's format. The client's own formatting is slow for thousands of ids."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class NamedQuery:
    """One ``.sql`` file.

    Attributes:
        name: Stem of the file name.
        sql: The SQL text with comments.
        parameters: ClickHouse type of each ``{name:Type}`` parameter.
        joins: How its joins run on a cluster: ``global``, ``local by trace``, …; empty without any.
        system_tables: Of which servers its system tables are on a cluster: ``shards`` (one of each), ``servers``, or
            empty for the one that runs it.
    """

    name: str
    sql: str
    parameters: Mapping[str, str]
    joins: str
    system_tables: str

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings that let its joins run as its comment says."""
        return {"distributed_product_mode": "local", "prefer_global_in_and_join": "0"} if "local" in self.joins else {}

    def bind(self, values: Mapping[str, object]) -> dict[str, object]:
        """Check the parameters and return their values in the client's format.

        Raises:
            StoreError: A parameter is missing or unknown, or its value has no ClickHouse format.
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
    """Return the query with this name. The StoreError for an unknown name lists all names."""
    try:
        return _named_queries()[name]
    except KeyError:
        raise StoreError(
            f"There is no query {name!r} in spanloop.",
            next_step=f"Use one of {', '.join(query_names())}, or add queries/{name}.sql to the package that reads it.",
        ) from None


def query_names() -> Sequence[str]:
    """Return all names, sorted."""
    return sorted(_named_queries())


@cache
def _named_queries() -> Mapping[str, NamedQuery]:
    queries: dict[str, NamedQuery] = {}
    for root in import_module("spanloop").__path__:
        for pattern in ("*/queries/*.sql", "*/*/queries/*.sql"):
            for file in Path(root).glob(pattern):
                if file.stem not in queries:
                    queries[file.stem] = parse(file.stem, file.read_text(encoding="utf-8"))
    return queries


def parse(name: str, sql: str) -> NamedQuery:
    """Parse the text of a query file."""
    parameters = {match[1]: match[2].strip() for match in _PLACEHOLDER.finditer(_COMMENT.sub("", sql))}
    joins, system_tables = _JOINS.search(sql), _SYSTEM_TABLES.search(sql)
    return NamedQuery(name, sql, parameters, joins[1] if joins else "", system_tables[1] if system_tables else "")


def _encode(query: str, parameter: str, value: object) -> object:
    if isinstance(value, Enum):
        return _encode(query, parameter, value.value)
    if isinstance(value, datetime):
        # The client's own formatting of a datetime drops the fraction of a second.
        aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return aware.strftime("%Y-%m-%d %H:%M:%S.%f")
    if value is None or isinstance(value, str | int | float | date):
        return value
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        texts = [item for item in items if type(item) is str]
        if items and len(texts) == len(items) and not _ESCAPED.search("".join(texts)):
            return _FormattedList("['" + "', '".join(texts) + "']")
        return [_encode(query, parameter, item) for item in items]
    raise StoreError(
        f"Parameter {parameter!r} of query {query!r} is a {type(value).__name__}, which has no ClickHouse format.",
        next_step="Pass a str, int, float, bool, date, datetime, or a list of these.",
    )

"""Templates of questions about the shop, each with the SQL that answers it.

Invariant: training and test draw their values from two halves that share none.
"""

import random
from collections.abc import Iterator
from functools import cache
from typing import Final, Literal, NamedTuple

from shop_database import CUSTOMERS, ORDERS, PRODUCTS, TABLES, Table, contents

Split = Literal["train", "test"]

AGGREGATES: Final = {"AVG": "average", "SUM": "total", "MAX": "highest", "MIN": "lowest"}
_EXTREMES: Final = {"DESC": "highest", "ASC": "lowest"}
_COMPARISONS: Final = {">": "above", "<": "below"}
_COUNT: Final = ("How many {rows} are there{where}?", "Count the {rows}{where}.")
_LIST: Final = ("What are the names of the {rows}{where}?", "List the names of the {rows}{where}.")
_AGGREGATE: Final = (
    "What is the {word} {column} of the {rows}{where}?",
    "Give me the {word} {column} of {rows}{where}.",
)
_EXTREME: Final = ("Which {row}{where} has the {word} {column}?", "Name the {row} with the {word} {column}{where}.")
_LOOKUP: Final = ("What is the {column} of the {row} {value}?", "Tell me the {column} of the {row} {value}.")
_DISTINCT: Final = ("How many different {column} values do the {rows} have?",)
_GROUP_COUNT: Final = ("How many {rows} are there for each {group}?", "Count the {rows} for each {group}.")
_GROUP: Final = ("What is the {word} {column} of the {rows} for each {group}?",)
_JOIN: Final = ("What is the {word} {column} of orders whose {other} has {group} {value}?",)
_JOIN_COUNT: Final = ("How many orders have a {other} with {group} {value}?",)


class Template(NamedTuple):
    """A kind of question; ``{value}`` stands for a value of ``column`` of ``table``."""

    wordings: tuple[str, ...]
    sql: str
    table: str = ""
    column: str = ""
    """Empty when there is no value."""


class Filter(NamedTuple):
    """A condition, in words and in SQL."""

    words: str
    sql: str
    column: str


def templates() -> list[Template]:
    """Return all templates."""
    return [template for table in TABLES for template in _of_table(table)] + [
        template for table, key in ((CUSTOMERS, "customer"), (PRODUCTS, "product")) for template in _joins(table, key)
    ]


def ask(template: Template, split: Split, rng: random.Random) -> tuple[str, str]:
    """Return a question and its SQL, with a random wording and a random value of the split's half."""
    wording = rng.choice(template.wordings)
    if not template.column:
        return wording, template.sql
    value = rng.choice(_halves(template.table, template.column)[split])
    return wording.format(value=value), template.sql.format(value=value)


@cache
def _halves(table: str, column: str) -> dict[Split, list[str | int]]:
    """Return a column's values for each split: even and odd numbers, and every second text of the database."""
    texts = sorted(
        {value for rows in contents().values() for row in rows for value in row.values() if isinstance(value, str)}
    )
    halves: dict[Split, list[str | int]] = {"train": [], "test": []}
    for value in sorted({row[column] for row in contents()[table]}, key=str):
        is_odd = (texts.index(value) if isinstance(value, str) else value) % 2
        halves["test" if is_odd else "train"].append(value)
    return halves


def _of_table(table: Table) -> Iterator[Template]:
    name = table.name
    everything = Filter("", "", "")
    equal = [
        Filter(f" whose {column} is {{value}}", f" WHERE {column} = '{{value}}'", column) for column in table.texts
    ]
    compared = [
        Filter(f" whose {column} is {word} {{value}}", f" WHERE {column} {sign} {{value}}", column)
        for column in table.numbers
        for sign, word in _COMPARISONS.items()
    ]
    for where in (everything, *equal, *compared):
        yield _template(_COUNT, f"SELECT COUNT(*) FROM {name}{where.sql}", table, where)
    for where in (everything, *equal):
        for column in table.numbers:
            for function, word in AGGREGATES.items():
                sql = f"SELECT {function}({column}) FROM {name}{where.sql}"
                yield _template(_AGGREGATE, sql, table, where, column=column, word=word)
    for group in table.texts:
        yield _template(_DISTINCT, f"SELECT COUNT(DISTINCT {group}) FROM {name}", table, everything, column=group)
        sql = f"SELECT {group}, COUNT(*) FROM {name} GROUP BY {group}"
        yield _template(_GROUP_COUNT, sql, table, everything, group=group)
        for column in table.numbers:
            for function, word in AGGREGATES.items():
                sql = f"SELECT {group}, {function}({column}) FROM {name} GROUP BY {group}"
                yield _template(_GROUP, sql, table, everything, column=column, word=word, group=group)
    if table.is_named:
        yield from _of_named_table(table, everything, equal, compared)


def _of_named_table(
    table: Table, everything: Filter, equal: list[Filter], compared: list[Filter]
) -> Iterator[Template]:
    for where in (*equal, *compared):
        yield _template(_LIST, f"SELECT name FROM {table.name}{where.sql}", table, where)
    for column in (*table.texts, *table.numbers):
        sql = f"SELECT {column} FROM {table.name} WHERE name = '{{value}}'"
        yield _template(_LOOKUP, sql, table, Filter("", "", "name"), column=column, value="{value}")
    for where in (everything, *equal):
        for column in table.numbers:
            for order, word in _EXTREMES.items():
                sql = f"SELECT name FROM {table.name}{where.sql} ORDER BY {column} {order} LIMIT 1"
                yield _template(_EXTREME, sql, table, where, column=column, word=word)


def _joins(table: Table, key: str) -> Iterator[Template]:
    for group in table.texts:
        where = Filter("", f"JOIN {table.name} ON {key} = name WHERE {group} = '{{value}}'", group)
        words = {"other": key, "group": group, "value": "{value}"}
        yield _template(_JOIN_COUNT, f"SELECT COUNT(*) FROM {ORDERS.name} {where.sql}", table, where, **words)
        for column in ORDERS.numbers:
            for function, word in AGGREGATES.items():
                sql = f"SELECT {function}({column}) FROM {ORDERS.name} {where.sql}"
                yield _template(_JOIN, sql, table, where, column=column, word=word, **words)


def _template(wordings: tuple[str, ...], sql: str, table: Table, where: Filter, **words: str) -> Template:
    words = {"rows": table.name, "row": table.singular, "where": where.words, **words}
    return Template(tuple(text.format(**words) for text in wordings), sql, table.name, where.column)

"""Four real tools of a small office: a SQLite lookup, arithmetic, a calendar and a text search.

A tool that fails raises an exception whose message says what it accepts.
"""

import ast
import json
import operator
import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

_OPERATORS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_LONGEST_EXPRESSION: Final = 40
_WORD: Final = re.compile(r"[a-z0-9]+")
_COMMON: Final = frozenset(("by", "founded", "founder", "in", "is", "of", "the", "was", "what", "where", "who"))


class Office:
    """The tools over one database.

    Args:
        database: SQLite file with the tables ``items``, ``events`` and ``pages``, as `tasks.write_office` makes it.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._tools: dict[str, Callable[[str], str]] = {
            "price": self.price,
            "calculator": self.calculator,
            "time": self.time,
            "search": self.search,
        }

    def call(self, name: str, arguments: str) -> str:
        """Run one tool call.

        Args:
            name: The tool's name from the model.
            arguments: A JSON object from the model.

        Raises:
            LookupError: The tool does not exist, or found nothing.
            ValueError: The arguments are not a JSON object with a text under ``input``.
        """
        if name not in self._tools:
            raise LookupError(f"no tool {name!r}; there are {', '.join(self._tools)}")
        match json.loads(arguments or "{}"):
            case {"input": str(text), **rest} if not rest:
                return self._tools[name](text)
            case _:
                raise ValueError(f'{name} takes {{"input": "text"}}, got {arguments}')

    def price(self, item: str) -> str:
        """Price of an item."""
        rows = self._rows("SELECT price FROM items WHERE instr(lower(?), name)", item)
        if not rows:
            raise LookupError(f"no item {item!r}")
        return f"{rows[0][0]} dollars"

    def calculator(self, expression: str) -> str:
        """Result of an expression."""
        if len(expression) > _LONGEST_EXPRESSION:
            raise ValueError(f"the expression is longer than {_LONGEST_EXPRESSION} characters")
        return str(_value(ast.parse(expression.strip(), mode="eval").body))

    def time(self, event: str) -> str:
        """Day and time of an event."""
        rows = self._rows("SELECT name, day, time FROM events WHERE instr(lower(?), name)", event)
        if not rows:
            raise LookupError(f"no event {event!r}")
        name, day, hour = rows[0]
        return f"{name}: {day} at {hour}"

    def search(self, query: str) -> str:
        """Founder and city of a company."""
        query_words = Counter(_words(query))
        best, best_count = "", 0
        for (text,) in self._rows("SELECT text FROM pages ORDER BY text"):
            count = sum((query_words & Counter(_words(text))).values())
            if count > best_count:
                best, best_count = text, count
        if not best:
            raise LookupError(f"no page has a word of {query!r}")
        return best

    def _rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{self._database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(sql, values).fetchall()


def definitions() -> list[dict[str, Any]]:
    """Return the tools in the form of the chat API."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.__name__,
                "description": (tool.__doc__ or "").rstrip("."),
                "parameters": {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                },
            },
        }
        for tool in (Office.price, Office.calculator, Office.time, Office.search)
    ]


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("only whole numbers, +, - and * are understood")


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _COMMON]

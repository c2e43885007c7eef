"""The agent's two tools, and the messages that its dialogs begin with.

Invariant: agent and demonstrations get tools and messages from here, so both are the same tokens.
"""

import json
from typing import Any, Final

from langchain_core.tools import BaseTool, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from read_only_database import QueryError, ReadOnlyDatabase, Row

SYSTEM: Final = "Answer questions about a database. First call schema, then query."
QUESTION: Final = "Question: {}"
MAX_SHOWN_ROWS: Final = 5


def make_tools(database: ReadOnlyDatabase) -> list[BaseTool]:
    """Return the tools ``schema`` and ``query`` of a database."""

    @tool(description=f"Columns of tables. Tables: {', '.join(database.columns)}")
    def schema(tables: str) -> str:
        try:
            return database.schema(tables)
        except QueryError as error:
            raise ToolException(str(error)) from error

    @tool(description="Run SQLite SQL", response_format="content_and_artifact")
    def query(sql: str) -> tuple[str, list[Row]]:
        try:
            rows = database.query(sql)
        except QueryError as error:
            raise ToolException(str(error)) from error
        return shown_rows(rows), rows

    return [schema, query]


def shown_rows(rows: list[Row]) -> str:
    """Return what the model reads of a result."""
    lines = [" | ".join(str(value) for value in row) for row in rows[:MAX_SHOWN_ROWS]]
    left_out = len(rows) - len(lines)
    return "\n".join(lines + [f"and {left_out} more"] * bool(left_out)) or "no rows"


def question_message(question: str) -> dict[str, Any]:
    """Return the message that asks."""
    return {"role": "user", "content": QUESTION.format(question)}


def call_messages(tables: str, columns: str, sql: str) -> list[dict[str, Any]]:
    """Return the messages of an attempt that reads the schema of ``tables`` and runs ``sql``."""
    return [
        _call("schema", {"tables": tables}),
        {"role": "tool", "tool_call_id": "schema", "content": columns},
        _call("query", {"sql": sql}),
    ]


def definitions(database: ReadOnlyDatabase) -> list[dict[str, Any]]:
    """Return the tools in the form of the chat API."""
    return [convert_to_openai_tool(each) for each in make_tools(database)]


def _call(name: str, arguments: dict[str, str]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": name, "type": "function", "function": function}]}


def _example(question: str, tables: str, columns: str, sql: str, result: str) -> list[dict[str, Any]]:
    return [
        question_message(question),
        *call_messages(tables, columns, sql),
        {"role": "tool", "tool_call_id": "query", "content": result},
    ]


_PLANETS: Final = "planets(name, type, radius, mass)"
OPENING: Final = [
    {"role": "system", "content": SYSTEM},
    *_example(
        "How many planets are there whose type is gas?",
        "planets",
        _PLANETS,
        "SELECT COUNT(*) FROM planets WHERE type = 'gas'",
        "4",
    ),
    *_example(
        "What is the average size of moons whose planet has type gas?",
        "moons, planets",
        f"moons(planet, size)\n{_PLANETS}",
        "SELECT AVG(size) FROM moons JOIN planets ON planet = name WHERE type = 'gas'",
        "204",
    ),
]
"""What stands before every question: small models call no tool without examples. No database has their tables."""

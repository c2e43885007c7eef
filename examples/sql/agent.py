"""A LangGraph agent that answers questions with SQL: read the schema, query, and query again after an error.

    spanloop loop app.toml

`answer` is called for each attempt; ``reward()`` sends its reward. ``SQL_DATABASE`` names the SQLite file,
``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` the model.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from execution_accuracy import execution_reward
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from read_only_database import ReadOnlyDatabase, Row
from sql_tools import OPENING, make_tools, question_message

from spanloop.instrumentation import reward

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

MAX_CALLS: Final = 3
"""Model calls of an attempt."""
MAX_TOKENS: Final = 72
"""Of a model call."""
TEMPERATURE: Final = 0.6
MAX_ERROR_CHARACTERS: Final = 160
"""Of a tool's error; the model has to find the reason in it."""


def make_agent(model: ChatOpenAI, database: ReadOnlyDatabase) -> "CompiledStateGraph[Any]":
    """Return the graph: the model, its tools, and the model again until a query returns rows."""
    tools = make_tools(database)
    model_with_tools = model.bind_tools(tools)

    def call_model(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [model_with_tools.invoke([*OPENING, *state["messages"]])]}

    def after_tools(state: MessagesState) -> str:
        messages = state["messages"]
        calls = sum(isinstance(message, AIMessage) for message in messages)
        return END if query_rows(messages) or calls >= MAX_CALLS else "model"

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=_error_text))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_conditional_edges("tools", after_tools, ["model", END])
    return graph.compile()


def query_rows(messages: Sequence[AnyMessage]) -> list[Row] | None:
    """Return the rows of the last query that ran; None without one."""
    results = [message for message in messages if isinstance(message, ToolMessage) and message.status == "success"]
    return next((message.artifact for message in reversed(results) if message.name == "query"), None)


def answer(fields: dict[str, Any]) -> str:
    """Attempt one task; return the rows of the last query, whose comparison with the right ones is the reward."""
    database = ReadOnlyDatabase(Path(os.environ["SQL_DATABASE"]))
    expected = database.query(fields["sql"])
    messages: list[AnyMessage] = []
    with suppress(ValueError):  # LangChain refuses a call whose arguments are no object, or no Unicode
        messages = make_agent(_model(), database).invoke({"messages": [question_message(fields["question"])]})[
            "messages"
        ]
    read_schema = any(isinstance(each, ToolMessage) and each.status == "success" for each in messages)
    rows = query_rows(messages)
    reward(execution_reward(expected, rows, fields["sql"], read_schema=read_schema))
    return str(rows)


@cache
def _model() -> ChatOpenAI:
    return ChatOpenAI(
        model=os.environ["OPENAI_MODEL"], temperature=TEMPERATURE, max_completion_tokens=MAX_TOKENS, max_retries=2
    )


def _error_text(error: Exception) -> str:
    return f"Error: {error}"[:MAX_ERROR_CHARACTERS]

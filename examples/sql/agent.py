"""A LangGraph agent that answers questions with SQL: read the schema, query, and query again after an error.

    opentelemetry-instrument python agent.py TASKS.jsonl --model NAME [--database FILE]

It attempts every task of the file. Spanloop's two optional calls, ``task()`` and ``reward()``, name the task and the
reward of each attempt. ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` set the model's endpoint.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from execution_accuracy import execution_reward
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai import OpenAIError
from read_only_database import ReadOnlyDatabase, Row, only_database
from sql_tasks import Task, read_tasks, tasks_with_result
from sql_tools import OPENING, make_tools, question_message

from spanloop.instrumentation import reward, task

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

MAX_CALLS: Final = 3
"""Model calls of an attempt."""
MAX_TOKENS: Final = 72
"""Of a model call."""
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


def attempt(agent: "CompiledStateGraph[Any]", database: ReadOnlyDatabase, sql_task: Task) -> float:
    """Attempt one task; return its reward."""
    expected = database.query(sql_task.sql)
    messages: list[AnyMessage] = []
    with task(sql_task.id, agent_name="sql agent"):
        with suppress(ValueError):  # LangChain refuses a call whose arguments are no object, or no Unicode
            messages = agent.invoke({"messages": [question_message(sql_task.question)]})["messages"]
        read_schema = any(isinstance(each, ToolMessage) and each.status == "success" for each in messages)
        score = execution_reward(expected, query_rows(messages), sql_task.sql, read_schema=read_schema)
        reward(score)
    return score


def _error_text(error: Exception) -> str:
    return f"Error: {error}"[:MAX_ERROR_CHARACTERS]


def main() -> None:
    """Attempt every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path, help="JSON lines with question and sql")
    parser.add_argument("--database", type=Path, help="SQLite file; default: the only *.sqlite beside the tasks")
    parser.add_argument("--model", required=True, help="name at OPENAI_BASE_URL")
    parser.add_argument("--attempts", type=int, default=1, help="attempts at each task")
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--parallel", type=int, default=32, help="attempts at the same time")
    options = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "not-needed")
    try:
        database = ReadOnlyDatabase(options.database or only_database(options.tasks.parent))
        tasks = tasks_with_result(read_tasks(options.tasks), database)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    model = ChatOpenAI(
        model=options.model, temperature=options.temperature, max_completion_tokens=MAX_TOKENS, max_retries=2
    )
    agent = make_agent(model, database)
    total, completed = 0.0, 0
    with ThreadPoolExecutor(max_workers=options.parallel) as pool:
        running = [
            pool.submit(attempt, agent, database, sql_task) for sql_task in tasks for _ in range(options.attempts)
        ]
        for future in as_completed(running):
            try:
                total += future.result()
            except OpenAIError as error:
                pool.shutdown(wait=False, cancel_futures=True)
                sys.exit(f"the model did not respond: {error}")
            completed += 1
            print(f"{completed}/{len(running)} attempts, mean reward {total / completed:.2f}", flush=True)


if __name__ == "__main__":
    main()

"""A scripted shop for the tiny demo: its items, two tools, tasks with right answers, and sample conversations.

The tiny model is trained on ``conversation``; the demo's agent works on ``question`` with the real tools. Everything
is deterministic but for what a passed generator decides.
"""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

ITEMS: Final = {"apple": 2, "bread": 3, "cheese": 7, "tea": 5, "rice": 4, "jam": 6}
"""Item → unit price."""

UNKNOWN_ITEMS: Final = ("melon", "fig")
"""Items of tasks that the shop does not sell: the price tool fails on them."""

QUANTITIES: Final = (2, 3, 4, 5)

TASK_COUNT: Final = 8

SYSTEM: Final = "You are a shop clerk. Use the tools."


Message = dict[str, Any]
"""One chat message in the OpenAI API's form."""


class Parameter(TypedDict):
    """JSON schema of one tool parameter."""

    type: str


class Tool(NamedTuple):
    """One tool of the shop, as the agent offers it to the model."""

    name: str
    description: str
    parameters: dict[str, Parameter]

    def definition(self) -> dict[str, Any]:
        """Return the tool in the OpenAI API's form."""
        schema = {"type": "object", "properties": self.parameters, "required": list(self.parameters)}
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


TOOLS: Final = (
    Tool("price", "unit price of an item", {"item": {"type": "string"}}),
    Tool("multiply", "product of two numbers", {"a": {"type": "integer"}, "b": {"type": "integer"}}),
)


class ShopFiles(NamedTuple):
    """Files that the demo's agent reads."""

    tasks: Path
    database: Path


def write_shop(folder: Path) -> ShopFiles:
    """Write ``world.json`` (system prompt, tools and tasks) and ``shop.sqlite`` (prices) into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    files = ShopFiles(folder / "world.json", folder / "shop.sqlite")
    tasks: list[dict[str, str]] = []
    for number, item in enumerate([*ITEMS, *UNKNOWN_ITEMS][:TASK_COUNT]):
        quantity = QUANTITIES[number % len(QUANTITIES)]
        answer = str(ITEMS[item] * quantity) if item in ITEMS else "We do not sell that."
        tasks.append({"id": f"shop-{number}", "question": question(item, quantity), "item": item, "answer": answer})
    content = {"system": SYSTEM, "tools": [tool.definition() for tool in TOOLS], "tasks": tasks}
    files.tasks.write_text(json.dumps(content, indent=1))
    with closing(sqlite3.connect(files.database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS items (name TEXT PRIMARY KEY, price INTEGER NOT NULL)")
        connection.executemany("INSERT OR REPLACE INTO items VALUES (?, ?)", ITEMS.items())
    return files


def question(item: str, quantity: int) -> str:
    """Return the user's question of a task."""
    return f"What do {quantity} {item} cost?"


def conversation(rng: random.Random) -> list[Message]:
    """Return one scripted conversation; every fifth step has a mistake, so that the trained model makes mistakes."""
    item = rng.choice([*ITEMS, *UNKNOWN_ITEMS])
    quantity = rng.choice(QUANTITIES)
    called_item = item if rng.random() < 0.8 else rng.choice([*ITEMS, *UNKNOWN_ITEMS])
    messages: list[Message] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question(item, quantity)},
        _call("price", {"item": called_item}),
    ]
    if called_item not in ITEMS:
        answer = "We do not sell that." if rng.random() < 0.8 else str(quantity)
        return [
            *messages,
            _result(f"Error: KeyError: no item {called_item!r}"),
            {"role": "assistant", "content": answer},
        ]
    price = ITEMS[called_item]
    factor = quantity if rng.random() < 0.8 else rng.choice(QUANTITIES)
    product = price * factor
    total = product if rng.random() < 0.8 else product + 1
    return [
        *messages,
        _result(str(price)),
        _call("multiply", {"a": factor, "b": price}),
        _result(str(product)),
        {"role": "assistant", "content": f"{total}"},
    ]


def _call(name: str, arguments: dict[str, object]) -> Message:
    call = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _result(content: str) -> Message:
    return {"role": "tool", "tool_call_id": "call_0", "content": content}

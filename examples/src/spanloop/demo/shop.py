"""The scripted world of the tiny demo: a shop with two tools, its tasks, and conversations about it.

The tiny model is trained on ``conversation``; the demo's agent works on ``question`` with the real tools. Nothing
here is random unless a generator is passed in.
"""

import json
import random
from typing import Any, Final, NamedTuple, TypedDict

ITEMS: Final = {"apple": 2, "bread": 3, "cheese": 7, "tea": 5, "rice": 4, "jam": 6}
"""Unit prices of what the shop sells."""

UNKNOWN_ITEMS: Final = ("melon", "fig")
"""Asked for in tasks and sold nowhere: the price tool fails on them."""

QUANTITIES: Final = (2, 3, 4, 5)

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
        """The tool in the OpenAI API's form."""
        schema = {"type": "object", "properties": self.parameters, "required": list(self.parameters)}
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


TOOLS: Final = (
    Tool("price", "unit price of an item", {"item": {"type": "string"}}),
    Tool("multiply", "product of two numbers", {"a": {"type": "integer"}, "b": {"type": "integer"}}),
)


def question(item: str, quantity: int) -> str:
    """The task's wording."""
    return f"What do {quantity} {item} cost?"


def conversation(rng: random.Random) -> list[Message]:
    """One scripted conversation, with mistakes in every fifth step so that the model's policy has some to make."""
    item = rng.choice([*ITEMS, *UNKNOWN_ITEMS])
    quantity = rng.choice(QUANTITIES)
    asked = item if rng.random() < 0.8 else rng.choice([*ITEMS, *UNKNOWN_ITEMS])
    messages: list[Message] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question(item, quantity)},
        _call("price", {"item": asked}),
    ]
    if asked not in ITEMS:
        answer = "We do not sell that." if rng.random() < 0.8 else str(quantity)
        return [*messages, _result(f"Error: KeyError: no item {asked!r}"), {"role": "assistant", "content": answer}]
    price = ITEMS[asked]
    factor = quantity if rng.random() < 0.8 else rng.choice(QUANTITIES)
    product = price * factor
    said = product if rng.random() < 0.8 else product + 1
    return [
        *messages,
        _result(str(price)),
        _call("multiply", {"a": factor, "b": price}),
        _result(str(product)),
        {"role": "assistant", "content": f"{said}"},
    ]


def _call(name: str, arguments: dict[str, object]) -> Message:
    call = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _result(content: str) -> Message:
    return {"role": "tool", "tool_call_id": "call_0", "content": content}

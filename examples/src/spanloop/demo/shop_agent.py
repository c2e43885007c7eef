"""The tiny demo's agent: an ordinary OpenAI-SDK loop with two real tools, as anybody would write it.

It runs as a program of its own::

    opentelemetry-instrument python agent.py WORLD.json SHOP.sqlite REPORT.json --attempts 4

The two lines of spanloop in it, ``task()`` and ``reward()``, are optional in an app; here they say which attempts are
at the same task and how well each went. The report is the agent's own account of what happened, written so that
somebody else can compare it with what the spans say.
"""

import argparse
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from openai import OpenAI

from spanloop.instrumentation import reward, task

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_STEPS = 4


class Outcome(NamedTuple):
    """The agent's own account of one attempt."""

    task_id: str
    reward: float
    response_ids: list[str]
    failed_calls: list[str]
    """Ids of the tool calls that raised."""


class Shop:
    """The tools. They raise when they cannot do what they were asked."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._tools: dict[str, Callable[..., object]] = {"price": self.price, "multiply": self.multiply}

    def price(self, item: str) -> int:
        """Unit price of an item."""
        with closing(sqlite3.connect(self._database)) as connection:
            row = connection.execute("SELECT price FROM items WHERE name = ?", (item,)).fetchone()
        if row is None:
            raise KeyError(f"no item {item!r}")
        return int(row[0])

    def multiply(self, a: int, b: int) -> int:
        """Product of two numbers."""
        return int(a) * int(b)

    def call(self, name: str, arguments: str) -> str:
        """Run a tool call."""
        if name not in self._tools:
            raise LookupError(f"no tool {name!r}")
        return str(self._tools[name](**json.loads(arguments)))


def attempt(client: OpenAI, model: str, shop: Shop, world: dict[str, Any], each: dict[str, Any]) -> Outcome:
    """One attempt at one task: ask, run the tools that were called, ask again, until there is an answer."""
    messages: list[Any] = [
        {"role": "system", "content": world["system"]},
        {"role": "user", "content": each["question"]},
    ]
    response_ids: list[str] = []
    failed: list[str] = []
    answer = ""
    with task(each["id"]):
        for _ in range(MOST_STEPS):
            reply = client.chat.completions.create(
                model=model, messages=messages, tools=world["tools"], temperature=1.0, max_tokens=64
            )
            response_ids.append(reply.id)
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                answer = message.content or ""
                break
            for call in message.tool_calls:
                if call.type != "function":
                    continue
                try:
                    content = shop.call(call.function.name, call.function.arguments)
                except Exception as error:  # noqa: BLE001 - whatever a tool raises, the model is told
                    failed.append(call.id)
                    content = f"Error: {type(error).__name__}: {error.args[0] if error.args else error}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        score = grade(each, answer, messages)
        reward(score)
    return Outcome(each["id"], score, response_ids, failed)


def grade(each: dict[str, Any], answer: str, messages: list[Any]) -> float:
    """1 for the right answer; a little for having looked up the right item; else 0."""
    if answer.strip() == each["answer"]:
        return 1.0
    calls = [call["function"]["arguments"] for message in messages for call in message.get("tool_calls", [])]
    return 0.25 if any(each["item"] in arguments for arguments in calls) else 0.0


def main() -> None:
    """Attempt every task and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", type=Path, help="system prompt, tools and tasks")
    parser.add_argument("database", type=Path, help="SQLite database of the shop")
    parser.add_argument("report", type=Path, help="where to write what happened")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--attempts", type=int, default=4, help="attempts at each task")
    options = parser.parse_args()
    world = json.loads(options.world.read_text())
    client = OpenAI(api_key="not-needed", max_retries=0)
    shop = Shop(options.database)
    work = [each for each in world["tasks"] for _ in range(options.attempts)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        running = [pool.submit(attempt, client, options.model, shop, world, each) for each in work]
        outcomes = [each.result() for each in running]
    options.report.write_text(json.dumps([outcome._asdict() for outcome in outcomes]))
    mean = sum(outcome.reward for outcome in outcomes) / len(outcomes)
    print(f"{len(outcomes)} attempts at {len(world['tasks'])} tasks, mean reward {mean:.2f}")


if __name__ == "__main__":
    main()

"""The tiny demo's agent: an ordinary OpenAI-SDK loop with two real tools.

It runs as a separate program::

    opentelemetry-instrument python shop_agent.py WORLD.json SHOP.sqlite REPORT.json --attempts 4

Its two calls of spanloop, ``task()`` and ``reward()``, are optional in an app; here they name the task and the reward
of each attempt. The report records what the agent did, so that the demo can compare it with the spans.
"""

import argparse
import json
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from openai import OpenAI

from spanloop.instrumentation import reward, task

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_STEPS = 4


class AttemptReport(NamedTuple):
    """What the agent did in one attempt."""

    task_id: str
    reward: float
    response_ids: list[str]
    failed_calls: list[str]
    """Ids of the tool calls that raised."""


class Shop:
    """The tools. A tool that fails raises."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._tools: dict[str, Callable[..., object]] = {"price": self.price, "multiply": self.multiply}

    def price(self, item: str) -> int:
        """Return the unit price of an item."""
        with closing(sqlite3.connect(self._database)) as connection:
            row = connection.execute("SELECT price FROM items WHERE name = ?", (item,)).fetchone()
        if row is None:
            raise KeyError(f"no item {item!r}")
        return int(row[0])

    def multiply(self, a: int, b: int) -> int:
        """Return the product of two numbers."""
        return int(a) * int(b)

    def call(self, name: str, arguments: str) -> str:
        """Run a tool call."""
        if name not in self._tools:
            raise LookupError(f"no tool {name!r}")
        return str(self._tools[name](**json.loads(arguments)))


def attempt(client: OpenAI, model: str, shop: Shop, world: dict[str, Any], shop_task: dict[str, Any]) -> AttemptReport:
    """Attempt one task: call the model and run its tool calls until it answers."""
    messages: list[Any] = [
        {"role": "system", "content": world["system"]},
        {"role": "user", "content": shop_task["question"]},
    ]
    response_ids: list[str] = []
    failed: list[str] = []
    answer = ""
    with task(shop_task["id"]):
        for step in range(1, MAX_STEPS + 1):
            reply = client.chat.completions.create(
                model=model, messages=messages, tools=world["tools"], temperature=1.0, max_tokens=64
            )
            response_ids.append(reply.id)
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls or step == MAX_STEPS:  # no model would read the results of the last step
                answer = message.content or ""
                break
            for call in message.tool_calls:
                if call.type != "function":
                    continue
                try:
                    content = shop.call(call.function.name, call.function.arguments)
                except Exception as error:  # noqa: BLE001 - the model reads every error of a tool
                    failed.append(call.id)
                    content = f"Error: {type(error).__name__}: {error.args[0] if error.args else error}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        score = grade(shop_task, answer, messages)
        reward(score)
    return AttemptReport(shop_task["id"], score, response_ids, failed)


def grade(shop_task: dict[str, Any], answer: str, messages: list[Any]) -> float:
    """Return 1 for the right answer, 0.25 when the right item was looked up, else 0."""
    if answer.strip() == shop_task["answer"]:
        return 1.0
    calls = [call["function"]["arguments"] for message in messages for call in message.get("tool_calls", [])]
    return 0.25 if any(shop_task["item"] in arguments for arguments in calls) else 0.0


def main() -> None:
    """Attempt every task and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", type=Path, help="system prompt, tools and tasks")
    parser.add_argument("database", type=Path, help="SQLite database of the shop")
    parser.add_argument("report", type=Path, help="where to write what happened")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--attempts", type=int, default=4, help="attempts at each task")
    options = parser.parse_args()
    world = json.loads(options.world.read_text())
    client = OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "not-needed"), max_retries=0)
    shop = Shop(options.database)
    attempted_tasks = [shop_task for shop_task in world["tasks"] for _ in range(options.attempts)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        running = [pool.submit(attempt, client, options.model, shop, world, each) for each in attempted_tasks]
        reports = [future.result() for future in running]
    options.report.write_text(json.dumps([report._asdict() for report in reports]))
    mean = sum(report.reward for report in reports) / len(reports)
    print(f"{len(reports)} attempts at {len(world['tasks'])} tasks, mean reward {mean:.2f}")


if __name__ == "__main__":
    main()

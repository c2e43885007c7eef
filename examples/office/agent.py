"""An ordinary office assistant on the OpenAI SDK: pick a tool, call it, read the result, answer.

    spanloop loop app.toml
    opentelemetry-instrument python agent.py OFFICE.sqlite TASKS.jsonl --model NAME

The loop calls `attempt_task` for each attempt; the second command attempts every
task of the file. Spanloop's two optional calls, ``task()`` and ``reward()``, name the task and the
reward of each attempt. ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` set the model's endpoint.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from openai import OpenAI, OpenAIError
from tasks import Task, contains, read_tasks
from tools import Office, definitions

from spanloop.instrumentation import reward, task

MAX_STEPS: Final = 3
MAX_TOKENS: Final = 48
TEMPERATURE: Final = 0.6
SYSTEM: Final = "You are an office assistant. First call a tool, then answer."
QUESTION: Final = "Question: {}"
TOOLS: Final[list[Any]] = definitions()


def _example(question: str, tool: str, argument: str, result: str, answer: str) -> list[Any]:
    function = {"name": tool, "arguments": json.dumps({"input": argument})}
    return [
        {"role": "user", "content": QUESTION.format(question)},
        {"role": "assistant", "tool_calls": [{"id": "example", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "example", "content": result},
        {"role": "assistant", "content": answer},
    ]


_ACME: Final = "Acme was founded by Joe Doe in Nome"
_TEA_BREAK: Final = "tea break: Thursday at 16:30"
EXAMPLES: Final[list[Any]] = [
    *_example("Where is Acme?", "search", "Acme", _ACME, "Acme is in Nome."),
    *_example("What is 9 times 5?", "calculator", "9 * 5", "45", "The result is 45."),
    *_example("When is the tea break?", "time", "tea break", _TEA_BREAK, "It is Thursday at 16:30."),
    *_example("What is the price of the pink vase?", "price", "pink vase", "15 dollars", "It costs 15 dollars."),
    *_example("Who founded Acme?", "search", "Acme", _ACME, "Acme was founded by Joe Doe."),
    *_example("What time is the tea break?", "time", "tea break", _TEA_BREAK, "The tea break is at 16:30."),
    *_example("What is 2 plus 3?", "calculator", "2 + 3", "5", "The result is 5."),
]
"""Example conversations; small models call no tool without them."""


class Call(NamedTuple):
    """One tool call of an attempt."""

    tool: str
    result: str | None
    """None when the tool raised."""


def attempt(client: OpenAI, model: str, office: Office, office_task: Task, temperature: float) -> float:
    """Attempt one task; return its reward."""
    question = {"role": "user", "content": QUESTION.format(office_task.question)}
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, *EXAMPLES, question]
    calls: list[Call] = []
    answer = ""
    with task(office_task.id, agent_name="office assistant"):
        for _ in range(MAX_STEPS):
            reply = client.chat.completions.create(
                model=model, messages=messages, tools=TOOLS, temperature=temperature, max_tokens=MAX_TOKENS
            )
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                answer = message.content or ""
                break
            for call in message.tool_calls:
                if call.type != "function":
                    continue
                try:
                    content = office.call(call.function.name, call.function.arguments)
                    calls.append(Call(call.function.name, content))
                except Exception as error:  # noqa: BLE001 - the model reads every error of a tool
                    content = f"Error: {type(error).__name__}: {error}"
                    calls.append(Call(call.function.name, None))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        score = grade(office_task, calls, answer)
        reward(score)
    return score


@cache
def _client() -> OpenAI:
    return OpenAI(max_retries=2)


def attempt_task(fields: dict[str, str]) -> None:
    """Attempt the task of ``fields`` in this folder's office, for ``spanloop run`` and ``spanloop loop``."""
    office_task = Task(**{"id": os.environ["SPANLOOP_TASK_ID"], **fields})
    attempt(_client(), os.environ["OPENAI_MODEL"], Office(Path("office.sqlite")), office_task, TEMPERATURE)


def grade(office_task: Task, calls: list[Call], answer: str) -> float:
    """Return the reward of an attempt.

    1 for the right answer from the right tool's result, less than one half for a partial success: 0.4 when the right
    tool returned the right result, 0.2 when the right tool was called, 0.1 when any tool ran or the answer was guessed.

    Args:
        office_task: The task.
        calls: The tool calls in order.
        answer: The final answer; empty without one.
    """
    if any(
        call.tool == office_task.kind and call.result and contains(call.result, office_task.answer) for call in calls
    ):
        return 1.0 if contains(answer, office_task.answer) else 0.4
    if any(call.tool == office_task.kind for call in calls):
        return 0.2
    return 0.1 if contains(answer, office_task.answer) or any(call.result for call in calls) else 0.0


def main() -> None:
    """Attempt every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("office", type=Path, help="the office's SQLite database")
    parser.add_argument("tasks", type=Path, help="JSON lines of tasks")
    parser.add_argument("--model", required=True, help="name at OPENAI_BASE_URL")
    parser.add_argument("--attempts", type=int, default=1, help="attempts at each task")
    parser.add_argument("--temperature", type=float, default=TEMPERATURE)
    parser.add_argument("--parallel", type=int, default=32, help="attempts at the same time")
    options = parser.parse_args()
    tasks = read_tasks(options.tasks)
    client = OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "not-needed"), max_retries=2)
    office = Office(options.office)
    total, completed = 0.0, 0
    with ThreadPoolExecutor(max_workers=options.parallel) as pool:
        running = [
            pool.submit(attempt, client, options.model, office, office_task, options.temperature)
            for office_task in tasks
            for _ in range(options.attempts)
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

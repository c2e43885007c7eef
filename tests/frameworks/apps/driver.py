"""Runs an app's functions on the matrix's tasks, and says on stdout what each task answered.

An app passes what its framework can do: `ask` (one task), and where there is such a thing `ask_stream`, `ask_async`,
`delegate` (a task that one agent hands to another) and, for the gateway, `ask_schema` (an answer of the form `FORM`).
``python app.py crash`` lets a task end the process half-way.
"""

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

Ask = Callable[[str], object]


def get_weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: The name of the city.
    """
    degrees = {"Oslo": 7, "Paris": 18}
    if city not in degrees:
        raise ValueError(f"no such city: {city}")
    return f"{city}: {degrees[city]} degrees"


def get_population(city: str) -> str:
    """Get the population of a city.

    Args:
        city: The name of the city.
    """
    return f"{city}: {len(city)} hundred thousand people"


TOOLS = {"get_weather": get_weather, "get_population": get_population}
SYSTEM = "You report about cities. Use the tools."
BASE_URL = os.environ.get("MODEL_URL", "")
"""The scripted model's URL, without a path."""


def schema(name: str) -> dict[str, object]:
    """The JSON schema of a tool's arguments."""
    del name
    return {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


CLOSING = {"Connection": "close"}
"""Header fields of a client whose questions have an event loop each: an open connection belongs to one of them."""
FORM = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "additionalProperties": False,
}
"""The JSON schema of an answer."""


CHAT = "What is the capital of France? Answer in one sentence."
"""What a real model is asked."""


def question(ticket: str) -> str:
    return f"Report the weather of Oslo and Paris for {ticket}."


def drive(
    ask: Ask,
    *,
    ask_stream: Ask | None = None,
    ask_async: Callable[[str], Awaitable[object]] | None = None,
    delegate: Ask | None = None,
    ask_schema: Ask | None = None,
    has_threads: bool = True,
) -> None:
    if sys.argv[1:] == ["crash"]:
        ask(question("ticket-crash-1"))
        return
    if os.environ.get("MATRIX_GATEWAY") == "chat":
        _attempt("ticket-chat-1", lambda _: ask(CHAT))
        return
    for ticket in ("ticket-report-1", "ticket-report-2"):
        _attempt(ticket, ask)
    if ask_stream:
        _attempt("ticket-stream-1", ask_stream)
    if ask_async:
        asyncio.run(_concurrently(ask_async, "ticket-async-1", "ticket-async-2"))
    if has_threads:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda ticket: _attempt(ticket, ask), ("ticket-threads-1", "ticket-threads-2")))
    if delegate:
        _attempt("ticket-delegate-1", delegate)
    if ask_schema and os.environ.get("MATRIX_GATEWAY") == "1":
        _attempt("ticket-schema-1", lambda text: json.dumps(ask_schema(text)))


def _attempt(ticket: str, ask: Ask) -> None:
    try:
        with _task(ticket):
            _tell(ticket, ask(question(ticket)))
            _reward(ticket)
    except Exception:
        _fail(ticket)


async def _concurrently(ask: Callable[[str], Awaitable[object]], *tickets: str) -> None:
    async def attempt(ticket: str) -> None:
        try:
            with _task(ticket):
                _tell(ticket, await ask(question(ticket)))
                _reward(ticket)
        except Exception:
            _fail(ticket)

    await asyncio.gather(*map(attempt, tickets))


def _tell(ticket: str, answer: object) -> None:
    _write({"ticket": ticket, "answer": str(answer)})


def _fail(ticket: str) -> None:
    _write({"ticket": ticket, "error": traceback.format_exc()})


def _write(values: dict[str, str]) -> None:
    sys.stdout.write(f"\n{json.dumps(values)}\n")  # one call: threads write at the same time
    sys.stdout.flush()


HAS_REWARDS = os.environ.get("MATRIX_REWARDS") == "1"
"""Whether this is the variant that adds `task()` and `reward()`, and nothing else, to the app."""


def _task(ticket: str) -> AbstractContextManager[object]:
    if not HAS_REWARDS:
        return nullcontext()
    from spanloop.instrumentation import task

    return task(ticket)


def _reward(ticket: str) -> None:
    if HAS_REWARDS:
        from spanloop.instrumentation import reward

        reward(1.0 if ticket.endswith("1") else 0.25)

"""A model that answers in the app's process: the network's time would hide the microseconds that are measured.

Its histories are those of an agent's fourth turn, 3 KB each, and all different, because equal ones would compress to
nothing. Imports no telemetry.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import cycle
from random import Random
from typing import Any, Final

import httpx2
from openai import OpenAI

NAME: Final = "scripted"
TURNS: Final = 3
"""Tool calls that a history holds, each with its result."""
HISTORIES: Final = 200
_RANDOM: Final = Random(16)
_WORDS: Final = ["".join(_RANDOM.choices("abcdefghilmnoprstu", k=_RANDOM.randint(2, 9))) for _ in range(5_000)]

Message = dict[str, Any]
History = Any
"""A list of messages; the SDK has types of its own for them."""


def text(characters: int) -> str:
    """Made-up prose, which compresses about as well as real one."""
    return " ".join(_RANDOM.choices(_WORDS, k=characters // 6))[:characters]


def arguments() -> dict[str, Any]:
    """Of a tool call."""
    return {"query": text(60), "limit": 5}


def client() -> OpenAI:
    """The OpenAI SDK, whose requests this module answers."""
    transport = httpx2.MockTransport(_answer)
    return OpenAI(base_url="http://model.invalid/v1", api_key="none", http_client=httpx2.Client(transport=transport))


def histories() -> Iterator[History]:
    """The messages of one call after the other, without an end."""
    return cycle([_history() for _ in range(HISTORIES)])


TOOLS: Final[Any] = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the timetable.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            },
        },
    }
]


def span_attributes(messages: str) -> Mapping[str, str | int]:
    """The attributes of a model call, by OpenTelemetry's conventions."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": NAME,
        "gen_ai.response.model": NAME,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.usage.input_tokens": 612,
        "gen_ai.usage.output_tokens": 24,
        "gen_ai.input.messages": messages,
    }


def _history() -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": text(600)}, {"role": "user", "content": text(300)}]
    for number in range(TURNS):
        messages.append({"role": "assistant", "content": None, "tool_calls": [_call(f"call_{number}")]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": text(500)})
    return messages


def _call(call_id: str) -> Message:
    function = {"name": "search", "arguments": json.dumps(arguments())}
    return {"id": call_id, "type": "function", "function": function}


def _answer(request: httpx2.Request) -> httpx2.Response:
    del request
    message = {"role": "assistant", "content": None, "tool_calls": [_call("call_next")]}
    return httpx2.Response(
        200,
        json={
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": NAME,
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 612, "completion_tokens": 24, "total_tokens": 636},
        },
    )

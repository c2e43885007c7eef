"""Kinds of faults, each a function that puts one into a script and says what the truth then is."""

import json
import random
from collections.abc import Mapping
from copy import deepcopy
from typing import Final

from .fault import (
    APOLOGIES,
    Fault,
    Truth,
    is_fine,
    model_fault,
    output_fault,
    policy,
    program_fault,
    tool_fault,
    worded,
)
from .more_faults import MORE_FATAL, MORE_RECOVERABLE, RECOVERABLE_ONLY
from .script import Script, Turn, asks, says


def _unknown_tool(rng: random.Random, script: Script, place: int) -> Truth:
    call = script.turns[place].call or {}
    call["name"] = rng.choice(("lookup_", "fetch_", "do_")) + call["name"]
    script.turns[place].answer = worded(
        rng,
        script,
        (
            f"Error: unknown tool {call['name']}",
            f"{call['name']} is not a valid tool, try one of [{', '.join(tool['name'] for tool in script.tools[:3])}].",
            f"Tool {call['name']} not found in agent airline",
        ),
    )
    return policy("unknown_tool", place)


def _broken_json(rng: random.Random, script: Script, place: int) -> Truth:
    call = script.turns[place].call or {}
    text = json.dumps(call["arguments"])
    call["arguments"] = rng.choice((text[:-1], text.replace('"', "'").replace("'", '"', 1), text + "}", "none"))
    script.turns[place].answer = worded(
        rng,
        script,
        (
            "Error: arguments are not valid JSON",
            "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 1 column 27 (char 26)",
        ),
    )
    return policy("invalid_arguments", place)


def _missing_argument(rng: random.Random, script: Script, place: int) -> Truth:
    call = script.turns[place].call or {}
    name = rng.choice(sorted(call["arguments"]) or ["value"])
    call["arguments"].pop(name, None)
    script.turns[place].answer = worded(
        rng,
        script,
        (
            f"TypeError: {call['name']}() missing 1 required positional argument: '{name}'",
            f"Error: 1 validation error for {call['name']}\n{name}\n  Field required [type=missing]",
            f"Error executing tool {call['name']}: '{name}' is a required property",
        ),
    )
    return policy("invalid_arguments", place)


def _made_up(rng: random.Random, script: Script, place: int) -> Truth:
    call = script.turns[place].call or {}
    names = [name for name, value in call["arguments"].items() if isinstance(value, str) and value]
    name = rng.choice(names or ["reservation_id"])
    value = "".join(rng.choices("BCDFGHJKLMNPQRSTVWXZ", k=4)) + str(rng.randrange(10, 99)) + "X"
    call["arguments"][name] = value
    script.turns[place].answer = worded(
        rng,
        script,
        (
            f"Error: {name.replace('_', ' ')} {value} not found",
            f"KeyError: '{value}'",
            f"LookupError: no such {name}: {value}",
        ),
    )
    return policy("invalid_arguments", place)


def _wrongly_given(rng: random.Random, script: Script, place: int) -> Truth:
    value = f"{rng.choice(('mara', 'otto', 'lena'))}_{rng.choice(('vogt', 'brandt'))}_{rng.randrange(1000, 9999)}"
    script.opening.append({"role": "user", "parts": [{"type": "text", "content": f"Sorry, my user ID is {value}."}]})
    turn = script.turns[place]
    turn.said = asks(f"given-{place}", "get_user_details", {"user_id": value})
    turn.answer = worded(rng, script, (f"Error: user {value} not found", f"KeyError: '{value}'"))
    return Truth("invalid_user_input", "user", place, "tool")


def _refused(rng: random.Random, script: Script, place: int) -> Truth:
    script.turns[place].answer = worded(
        rng,
        script,
        (
            "Error: not enough seats on flight HAT089",
            "Error: payment amount does not add up, total price is 512, but paid 290",
            "Error: reservation has already been cancelled",
            '{"error": "insufficient funds on card ending in 7447"}',
        ),
    )
    return policy("refused_action", place)


def _retried(rng: random.Random, script: Script, place: int) -> Truth:
    truth = tool_fault("connection_error", "environment", ("ConnectionError", "connection refused"))(rng, script, place)
    for _ in range(2):
        script.turns.append(deepcopy(script.turns[place]))
    script.turns.append(Turn(says(rng.choice(APOLOGIES))))
    return truth


def _loop(rng: random.Random, script: Script, place: int) -> Truth:
    turn = script.turns[place]
    turn.answer = turn.answer if is_fine(turn.answer) else "[]"
    script.turns += [deepcopy(turn) for _ in range(rng.randrange(3, 7))]
    if rng.random() < 0.5:
        script.turns.append(Turn(says(rng.choice(APOLOGIES))))
    else:
        script.raised = ("MaxTurnsExceeded", "Max turns (20) exceeded")
    return policy("loop", place + 1)


def _missing_result(rng: random.Random, script: Script, place: int) -> Truth:
    script.turns[place].answer = None
    script.turns.append(Turn(says(rng.choice(APOLOGIES))))
    return Truth("missing_result", "harness", place, "call")


def _stopped(_: random.Random, script: Script, place: int) -> Truth:
    turn = script.turns[place]
    turn.answer = turn.answer if is_fine(turn.answer) else "[]"
    script.turns += (
        [Turn(asks(f"more-{n}", turn.call["name"], {"n": n}), "tool_call", answer=f"[{n}]") for n in (1, 2)]
        if turn.call
        else []
    )
    script.turns[-1].answer = None
    return policy("step_limit", len(script.turns) - 1)


def _wrong_answer(rng: random.Random, script: Script, place: int) -> Truth:
    turn = script.turns[place]
    turn.answer = turn.answer if is_fine(turn.answer) else "[]"
    script.turns.append(
        Turn(says(worded(rng, script, ("The total is 1,204 dollars.", "All three flights are on time."))))
    )
    return policy("wrong_answer", place + 1)


FATAL: Final[Mapping[str, Fault]] = {
    "unknown tool": _unknown_tool,
    "arguments that are no JSON": _broken_json,
    "missing argument": _missing_argument,
    "made-up argument": _made_up,
    "identifier wrongly given by user": _wrongly_given,
    "action that cannot be done": _refused,
    "tool raises": tool_fault(
        "tool_error",
        "tool",
        ("KeyError", "'currency'"),
        ("sqlite3.OperationalError", "database is locked"),
        ("AttributeError", "'NoneType' object has no attribute 'price'"),
    ),
    "tool times out": tool_fault(
        "timeout",
        "environment",
        ("TimeoutError", "timed out"),
        ("httpx.ReadTimeout", "The read operation timed out"),
    ),
    "tool rate limited": tool_fault(
        "rate_limit",
        "environment",
        ("HTTPStatusError", "Client error '429 Too Many Requests' for url 'https://x/y'"),
    ),
    "tool's service down": tool_fault(
        "server_error",
        "environment",
        ("HTTPError", "503 Server Error: Service Unavailable for url: https://x/y"),
        ("HTTPError", "HTTP Error 502: Bad Gateway"),
    ),
    "tool retried in vain": _retried,
    "model rate limited": model_fault(
        "rate_limit",
        "environment",
        ("RateLimitError", "Error code: 429 - Rate limit reached for gpt-4o"),
    ),
    "model times out": model_fault("timeout", "environment", ("APITimeoutError", "Request timed out.")),
    "model's service fails": model_fault(
        "server_error",
        "environment",
        ("InternalServerError", "Error code: 500 - The server had an error"),
        ("InternalServerError", "Error code: 503 - The engine is currently overloaded"),
    ),
    "connection to model breaks": model_fault(
        "connection_error",
        "environment",
        ("APIConnectionError", "Connection error."),
        ("RemoteProtocolError", "peer closed connection without sending complete message body"),
    ),
    "context overflow": model_fault(
        "context_overflow",
        "harness",
        ("BadRequestError", "Error code: 400 - This model's maximum context length is 8192 tokens, you requested 9031"),
        ("BadRequestError", "Error code: 400 - prompt is too long: 210000 tokens > 200000 maximum context"),
    ),
    "wrong key": model_fault(
        "authentication",
        "harness",
        ("AuthenticationError", "Error code: 401 - Incorrect API key provided"),
    ),
    "unknown model": model_fault(
        "invalid_request",
        "harness",
        ("NotFoundError", "Error code: 404 - The model `gpt-9` does not exist"),
    ),
    "output cut at its limit": output_fault(
        "truncated_output",
        "policy",
        "length",
        "To change the reservation I will first look up",
        "Let me see. The first",
    ),
    # Nothing recorded tells a broken connection from an app that stopped reading.
    "stream breaks": output_fault("incomplete_stream", "unknown", "", "One moment, I am loo", is_streaming=True),
    "tool call as plain text": output_fault(
        "malformed_output",
        "policy",
        "stop",
        "<tool_call>\nCALL\n</tool_call>",
        "CALL",
        "```json\nCALL\n```",
        "<|python_tag|>CALL",
    ),
    "empty output": output_fault("malformed_output", "policy", "stop", "", "  \n"),
    "content filter": output_fault("content_filter", "policy", "content_filter", "", "I"),
    "refusal": output_fault(
        "refusal",
        "policy",
        "stop",
        "I'm sorry, but I can't assist with that.",
        "I cannot help with this request.",
        "I'm unable to complete this task.",
    ),
    "loop": _loop,
    "program raises": program_fault(
        "harness_crash",
        "harness",
        ("TypeError", "unsupported operand type(s) for +: 'int' and 'str'"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: 'state.json'"),
    ),
    "stopped by hand": program_fault("cancelled", "user", ("KeyboardInterrupt", ""), ("CancelledError", "")),
    "tool's answer lost": _missing_result,
    "no turns left": _stopped,
    "wrong answer": _wrong_answer,
    **MORE_FATAL,
}

RECOVERABLE: Final = (
    "unknown tool",
    "arguments that are no JSON",
    "missing argument",
    "made-up argument",
    "action that cannot be done",
    "tool raises",
    "tool times out",
    "tool rate limited",
    "tool's service down",
    "model rate limited",
    "model times out",
    "model's service fails",
    "connection to model breaks",
    "tool call as plain text",
    "empty output",
    *MORE_RECOVERABLE,
)

FAULTS: Final[Mapping[str, Fault]] = {**FATAL, **RECOVERABLE_ONLY}

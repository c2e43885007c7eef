"""More kinds of faults: wrong arguments of other sorts, poor answers, broken streams, parallel calls, sub-agents."""

import json
import random
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from .fault import APOLOGIES, Fault, Truth, is_fine, model_fault, policy, program_fault, tool_fault, worded
from .script import Beside, Message, Raised, Script, Turn, asks, says


def _called(script: Script, place: int) -> Message:
    return script.turns[place].call or {}


def _strange_id(rng: random.Random) -> str:
    return "".join(rng.choices("BCDFGHJKLMNPQRSTVWXZ", k=4)) + str(rng.randrange(10, 99)) + "Q"


def _unnamed(rng: random.Random, script: Script, place: int) -> Truth:
    """An id that does not exist; the tool says what is missing and not which."""
    call = _called(script, place)
    names = [name for name in call["arguments"] if name.endswith("_id")]
    name = rng.choice(names) if names else "reservation_id"
    call["arguments"][name] = _strange_id(rng)
    what = name.removesuffix("_id").replace("_", " ")
    script.turns[place].answer = worded(
        rng, script, (f"Error: {what} not found", f"{what.capitalize()}NotFoundError: no such {what}")
    )
    return policy("invalid_arguments", place)


def _wrong_type(rng: random.Random, script: Script, place: int) -> Truth:
    call = _called(script, place)
    name = rng.choice(sorted(call["arguments"]) or ["value"])
    call["arguments"][name] = rng.choice(({"value": 1}, [["x"]], 17.5))
    script.turns[place].answer = worded(
        rng,
        script,
        (
            f"TypeError: argument '{name}' has the wrong type",
            f"Error: 1 validation error for {call['name']}\n{name}\n  Input should be a valid string",
            f"Error: invalid type for parameter {name}",
        ),
    )
    return policy("invalid_arguments", place)


def _similar_tool(rng: random.Random, script: Script, place: int) -> Truth:
    """The arguments are another tool's."""
    call = _called(script, place)
    others = [tool["name"] for tool in script.tools if tool["name"] != call["name"]]
    alike = sorted(others, key=lambda name: -len(set(name.split("_")) & set(call["name"].split("_"))))
    call["name"] = alike[0]
    given = sorted(call["arguments"]) or ["value"]
    script.turns[place].answer = worded(
        rng,
        script,
        (
            f"TypeError: {alike[0]}() got an unexpected keyword argument '{given[0]}'",
            f"Error: unknown parameter '{given[0]}' for {alike[0]}",
        ),
    )
    return policy("invalid_arguments", place)


def _not_accepted(rng: random.Random, script: Script, place: int) -> Truth:
    """A value that is of the right type and not one of those that are accepted."""
    call = _called(script, place)
    name = rng.choice(sorted(call["arguments"]) or ["value"])
    call["arguments"][name] = "tomorrow-ish"
    script.turns[place].answer = worded(
        rng,
        script,
        (
            f"Error: invalid value for {name}, must be one of the listed options",
            f"ValueError: {name} must be in the format YYYY-MM-DD",
            f'{{"error": "{name} is not valid"}}',
        ),
    )
    return policy("invalid_arguments", place)


def _to_correct(rng: random.Random, script: Script, place: int) -> Truth:
    """Nothing but that the next call works tells whose fault it was."""
    call = _called(script, place)
    before = call["arguments"]
    call["arguments"] = {name: value for name, value in before.items() if not isinstance(value, str)} | {
        name: value[::-1] for name, value in before.items() if isinstance(value, str)
    }
    if call["arguments"] == before:
        call["arguments"] = {**before, "n": 1}
    script.turns[place].answer = worded(rng, script, ("Error: no matching record", "Error: 404 Not Found"))
    return policy("invalid_arguments", place)


def _empty_answer(rng: random.Random, script: Script, place: int) -> Truth:
    script.turns[place].answer = worded(rng, script, ("", "null", "{}", "None"))
    return Truth("incomplete_result", "tool", place, "tool")


def _cut_answer(rng: random.Random, script: Script, place: int) -> Truth:
    answer = script.turns[place].answer or ""
    if not answer.startswith(("{", "[")) or len(answer) < len(_LONG) // 2:
        answer = _LONG
    script.turns[place].answer = answer[: rng.randrange(len(answer) // 3, len(answer) - 4)].rstrip("}] ,") + worded(
        rng, script, ("", "...", " [truncated]")
    )
    return Truth("incomplete_result", "tool", place, "tool")


_LONG: Final = json.dumps(
    {"flights": [{"number": f"HAT{n:03d}", "price": 90 + n, "seats": {"economy": n}} for n in range(9)]}
)


def _call_cut(rng: random.Random, script: Script, place: int) -> Truth:
    """The limit came in the middle of the arguments."""
    call, turn = _called(script, place), script.turns[place]
    text = json.dumps(call["arguments"] or {"value": "x"})
    call["arguments"] = text[: rng.randrange(1, len(text) - 1)]
    turn.answer, turn.finish, turn.then = None, worded(rng, script, ("length", "max_tokens")), []
    return policy("truncated_output", place)


def _stream_error(rng: random.Random, script: Script, place: int) -> Truth:
    """The stream had begun when the connection broke."""
    raised = worded(
        rng,
        script,
        (
            ("RemoteProtocolError", "peer closed connection without sending complete message body"),
            ("APIError", "stream ended unexpectedly"),
        ),
    )
    script.turns[place] = Turn(says("One moment, I am loo"), finish="", raised=raised, is_streaming=True)
    if len(script.turns) == place + 1:
        script.raised, script.reward = raised, None
    return Truth("incomplete_stream", "environment", place, "call")


def _reworded_loop(rng: random.Random, script: Script, place: int) -> Truth:
    """The same call with the same answer, every time under other words."""
    turn = script.turns[place]
    turn.answer = turn.answer if is_fine(turn.answer) else "[]"
    for number in range(rng.randrange(3, 6)):
        again = deepcopy(turn)
        parts = (again.said or {})["parts"]
        parts[0]["id"] = f"again-{place}-{number}"
        parts.insert(0, {"type": "text", "content": f"Let me check once more ({number + 2})."})
        script.turns.append(again)
    script.turns.append(Turn(says(rng.choice(APOLOGIES))))
    return policy("loop", place + 1)


def _searching_loop(rng: random.Random, script: Script, place: int) -> Truth:
    """One tool with ever other arguments and the very same answer."""
    turn = script.turns[place]
    turn.answer = worded(rng, script, ("[]", '{"results": []}', "Nothing is there."))
    for number in range(rng.randrange(5, 8)):
        again = deepcopy(turn)
        part = (again.said or {})["parts"][0]
        part["id"] = f"again-{place}-{number}"
        part["arguments"] = {**part["arguments"], "page": number + 2}
        script.turns.append(again)
    if rng.random() < _HALF:
        script.raised = ("GraphRecursionError", "Recursion limit of 25 reached without hitting a stop condition")
    else:
        script.turns.append(Turn(says(rng.choice(APOLOGIES))))
    return policy("loop", place + 1)


_HALF: Final = 0.5


def _crash_in_step(rng: random.Random, script: Script, place: int) -> Truth:
    """The program raised between a call and its tool."""
    truth = program_fault(
        "harness_crash",
        "harness",
        ("AttributeError", "'Agent' object has no attribute 'tools'"),
        ("OSError", "disk full"),
    )(rng, script, place)
    script.turns[place].answer = None
    return truth


def _fitting(tool: Mapping[str, Any]) -> dict[str, object]:
    """Arguments that the tool's schema allows."""
    kinds: dict[str, object] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    parameters = tool["parameters"]
    properties = parameters.get("properties", {})
    return {name: kinds.get(properties[name].get("type"), "all") for name in parameters.get("required", ())}


def _parallel(rng: random.Random, script: Script, place: int) -> Truth:
    """Of two calls that were made at once the second times out."""
    turn, call = script.turns[place], _called(script, place)
    turn.answer = turn.answer if is_fine(turn.answer) else "[]"
    tool = next(tool for tool in script.tools if tool["name"] != call["name"])
    raised = worded(rng, script, (("TimeoutError", "timed out"), ("httpx.ReadTimeout", "The read operation timed out")))
    beside = {"type": "tool_call", "id": f"beside-{place}", "name": tool["name"], "arguments": _fitting(tool)}
    turn.beside = [Beside(beside, f"Error executing tool: {raised[1]}", raised)]
    return Truth("timeout", "environment", place, "beside")


def _sub_agent(script: Script, place: int, *turns: Turn) -> None:
    call = _called(script, place)
    call["name"] = "ask_specialist"
    if not any(tool["name"] == "ask_specialist" for tool in script.tools):
        script.tools = [*script.tools, {"type": "function", "name": "ask_specialist", "parameters": {"type": "object"}}]
    script.turns[place].inner = list(turns)


def _tool_in_sub_agent(rng: random.Random, script: Script, place: int) -> Truth:
    """The tool of a sub-agent cannot be reached; it says so to its parent, in an answer like any other."""
    raised = worded(rng, script, (("ConnectionError", "connection refused"), ("OSError", "Network is unreachable")))
    asked = Turn(asks(f"inner-{place}", "fetch_fares", {"route": 1}), "tool_call", tool_raised=raised)
    asked.answer = f"Error executing tool: {raised[1]}"
    said = rng.choice(("I could not look the fares up.", "The fares cannot be had at the moment."))
    _sub_agent(script, place, asked, Turn(says(said)))
    script.turns[place].answer = said
    return Truth("connection_error", "environment", place, "inner tool")


def _model_in_sub_agent(rng: random.Random, script: Script, place: int) -> Truth:
    """A sub-agent's model call fails, and with it the tool that the sub-agent is to its parent."""
    raised = worded(
        rng,
        script,
        (
            ("RateLimitError", "Error code: 429 - Rate limit reached"),
            ("RateLimitError", "Error code: 429 - You exceeded your current quota"),
        ),
    )
    _sub_agent(script, place, Turn(None, raised=raised))
    script.turns[place].tool_raised = raised
    script.turns[place].answer = f"Error executing tool: {raised[1]}"
    return Truth("rate_limit", "environment", place, "inner call")


def _invented(rng: random.Random, script: Script, place: int) -> Truth:
    text = worded(
        rng,
        script,
        (
            "I cannot open the bookings, so let us simulate the missing data: three flights of 200 dollars each.",
            "As I have no access, I will use placeholder values for the fares.",
            "Let's assume the following prices for now: 120, 90 and 310 dollars.",
        ),
    )
    script.turns[place] = Turn(says(text), then=[_user("Go on.")])
    script.turns.append(Turn(says("So the total is 1,204 dollars.")))
    return policy("invented_data", place)


def _user(content: str) -> Message:
    return {"role": "user", "parts": [{"type": "text", "content": content}]}


_DENIED: Final[tuple[Raised, ...]] = (
    ("PermissionError", "[Errno 13] Permission denied: '/srv/bookings.db'"),
    ("HTTPStatusError", "Client error '403 Forbidden' for url 'https://x/y'"),
    ("HTTPError", "401 Client Error: Unauthorized for url: https://x/y"),
)

MORE_FATAL: Final[Mapping[str, Fault]] = {
    "id that does not exist, unnamed": _unnamed,
    "argument of the wrong type": _wrong_type,
    "arguments of a similar tool": _similar_tool,
    "value that is not accepted": _not_accepted,
    "tool answers nothing": _empty_answer,
    "tool's answer cut off": _cut_answer,
    "tool not let in": tool_fault("permission_denied", "environment", *_DENIED),
    "tool's network down": tool_fault(
        "connection_error",
        "environment",
        ("gaierror", "[Errno -3] Temporary failure in name resolution"),
        ("Error", "connect ECONNREFUSED 127.0.0.1:5432"),
        ("MaxRetryError", "HTTPSConnectionPool(host='x', port=443): Max retries exceeded with url: /y"),
    ),
    "tool throttled": tool_fault(
        "rate_limit",
        "environment",
        ("ThrottlingException", "Rate exceeded: request was throttled"),
        ("ResourceExhausted", "429 RESOURCE_EXHAUSTED"),
    ),
    "call cut at the token limit": _call_cut,
    "stream breaks with an error": _stream_error,
    "user goes away": model_fault(
        "cancelled", "user", ("CancelledError", ""), ("ClientDisconnect", "client disconnected before the answer")
    ),
    "loop in other words": _reworded_loop,
    "loop with other arguments": _searching_loop,
    "program raises within a step": _crash_in_step,
    "one of two parallel calls": _parallel,
    "tool fails in a sub-agent": _tool_in_sub_agent,
    "model fails in a sub-agent": _model_in_sub_agent,
    "data that the policy made up": _invented,
}

RECOVERABLE_ONLY: Final[Mapping[str, Fault]] = {"wrong arguments, then the right ones": _to_correct}

MORE_RECOVERABLE: Final = (
    "id that does not exist, unnamed",
    "argument of the wrong type",
    "arguments of a similar tool",
    "value that is not accepted",
    "tool not let in",
    "tool's network down",
    "tool throttled",
    "call cut at the token limit",
    "stream breaks with an error",
    *RECOVERABLE_ONLY,
)

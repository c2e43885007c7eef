"""Episodes as scripts that can be changed and then told as spans."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Message = dict[str, Any]
Raised = tuple[str, str]
"""Type and message of an exception."""


@dataclass
class Beside:
    """One more tool call of the same action."""

    call: Message
    answer: str
    tool_raised: Raised | None = None


@dataclass
class Turn:
    """One model call and what followed it."""

    said: Message | None
    """None when the call failed."""
    finish: str = "stop"
    raised: Raised | None = None
    is_streaming: bool = False
    answer: str | None = None
    """Of the tool, as the model is shown it; None without an answer."""
    tool_raised: Raised | None = None
    then: list[Message] = field(default_factory=list[Message])
    """What the user said next."""
    beside: list[Beside] = field(default_factory=list[Beside])
    """Calls that were made in parallel with the first."""
    inner: list["Turn"] = field(default_factory=list["Turn"])
    """What a sub-agent did that the tool call stands for."""

    @property
    def call(self) -> Message | None:
        """The tool call, if there is one."""
        parts = self.said["parts"] if self.said else []
        return next((part for part in parts if part["type"] == "tool_call"), None)


@dataclass
class Script:
    """An episode that can be told as spans."""

    opening: list[Message]
    turns: list[Turn]
    tools: list[Message]
    reward: float | None
    raised: Raised | None = None
    """What the program around it raised."""
    task_id: str = ""
    """Attempts at one task have the same."""
    due: frozenset[str] | None = None
    """What the task's solution does, each as ``_deed`` writes it; None when nobody said."""
    wording: int = 0
    """Which wording of its kind an injected fault has."""


def read_scripts(path: Path) -> list[Script]:
    """Episodes as ``{"reward", "traj": [OpenAI messages]}``, one a line; made-up ones when there is no file."""
    if not path.exists():
        print(f"airline episodes: made up, no file {path}")
        return [_made_up_episode(number) for number in range(120)]
    with gzip.open(path, "rt") as lines:
        found = [json.loads(line) for line in lines]
    tools = _tools([call for each in found for message in each["traj"] for call in message.get("tool_calls") or ()])
    return [_script(each, tools) for each in found]


def _script(found: Message, tools: list[Message]) -> Script:
    solution = found.get("info", {}).get("task", {}).get("actions")
    due = None if solution is None else frozenset(_deed(each["name"], each["kwargs"]) for each in solution)
    script = Script([], [], tools, float(found["reward"]), task_id=str(found.get("task_id", "")), due=due)
    for message in found["traj"]:
        role, content = message["role"], message.get("content") or ""
        if role == "assistant":
            calls = message.get("tool_calls") or ()
            asked = [
                asks(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls
            ]
            said = asked[0] if asked else says(content)
            script.turns.append(Turn(said, finish="tool_call" if asked else "stop"))
        elif role == "tool" and script.turns:
            script.turns[-1].answer = content
        else:
            after = script.turns[-1].then if script.turns else script.opening
            after.append({"role": role, "parts": [{"type": "text", "content": content}]})
    script.turns[-1].then = []
    return script


_DEED: Final = re.compile(r"(?:book|cancel|update|send)_")


def wrong_deeds(script: Script) -> list[int]:
    """The turns that did, in order, what the task's solution does not do."""
    if script.due is None:
        return []
    return [
        number
        for number, turn in enumerate(script.turns)
        if turn.call
        and _DEED.match(turn.call["name"])
        and not (turn.answer or "").startswith("Error")
        and _deed(turn.call["name"], turn.call["arguments"]) not in script.due
    ]


def _deed(name: str, arguments: object) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


def _made_up_episode(number: int) -> Script:
    tools = [
        {
            "name": name,
            "parameters": {"type": "object", "properties": {"user_id": {"type": "string"}}, "required": ["user_id"]},
        }
        for name in ("get_user_details", "cancel", "rebook")
    ]
    user = f"anna_kern_{4000 + number}"
    opening = [
        {"role": "system", "parts": [{"type": "text", "content": "You help passengers."}]},
        {"role": "user", "parts": [{"type": "text", "content": f"I am {user}, please cancel my flight {number}."}]},
    ]
    turns = [
        Turn(asks(f"{number}-{n}", name, {"user_id": user}), finish="tool_call", answer=f'{{"{name}": {n}}}')
        for n, name in enumerate(("get_user_details", "rebook", "cancel"))
    ]
    end = Turn(says("Your flight is cancelled."))
    return Script(opening, [*turns, end], tools, float(number % 2), task_id=str(number // 4))


def _tools(calls: Sequence[Message]) -> list[Message]:
    """Definitions as far as the calls tell: types of arguments, and those that are always given."""
    kinds = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
    given: dict[str, list[Message]] = {}
    for call in calls:
        given.setdefault(call["function"]["name"], []).append(json.loads(call["function"]["arguments"]))
    found: list[Message] = []
    for name, examples in sorted(given.items()):
        types = {key: {type(each[key]) for each in examples if key in each} for each in examples for key in each}
        properties = {key: {"type": kinds[next(iter(t))]} if len(t) == 1 else {} for key, t in sorted(types.items())}
        required = sorted(key for key in types if all(key in each for each in examples))
        parameters = {"type": "object", "properties": properties, "required": required}
        found.append({"type": "function", "name": name, "parameters": parameters})
    return found


def says(text: str) -> Message:
    """An answer in words; none at all for an empty text."""
    return {"role": "assistant", "parts": [{"type": "text", "content": text}] if text else []}


def asks(identity: str, name: str, arguments: object) -> Message:
    """A tool call."""
    part = {"type": "tool_call", "id": identity, "name": name, "arguments": arguments}
    return {"role": "assistant", "parts": [part]}

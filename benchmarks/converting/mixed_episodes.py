"""Episodes of a production mix as plain values, for us and for a peer alike: any number of them, the same each time.

Every third episode fails, in one of the ways of ``FAULTS``; one in six of the others gets over a tool's error. Three to
fifteen model calls an episode; texts of 40 to 2,000 characters; five services with an agent and tools each. A fifth are
bare loops, of which every call is a trace of its own; where their histories are edited, tool-call ids join them. Of two
fifths the tokens were captured. A sixth of the histories were edited by the harness: old results are cut out of them,
or all but the last exchange becomes a summary. Nine tenths have a reward, except where a request failed: nobody judges
a crash. Needs nothing but Python, because a peer's environment imports it too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from converting.mixed_texts import AGENTS, Agent, Tool, text, tokens

DIALECTS: Final = ("otel_genai", "openinference", "openllmetry")
FAULTS: Final = ("raised", "told", "unknown_tool", "invalid_arguments", "failed_request", "loop")
TURNS: Final = (3, 15)

_TURN_SHARES: Final = (10, 12, 14, 13, 11, 10, 8, 6, 5, 4, 3, 2, 2)
_ERRORS: Final = (
    ("ConnectionError", "connection to the database refused"),
    ("TimeoutError", "no answer within 30 seconds"),
    ("KeyError", "'customer_id'"),
    ("HTTPError", "503 Service Unavailable"),
)
_REQUEST_ERRORS: Final = (
    ("openai.RateLimitError", "Error code: 429 - Rate limit reached for requests"),
    ("openai.APIConnectionError", "Connection error."),
    ("openai.APITimeoutError", "Request timed out."),
    ("openai.InternalServerError", "Error code: 500 - The server had an error"),
)
_APOLOGY: Final = "I am sorry, I could not finish this. "


@dataclass(frozen=True)
class ToolUse:
    """One tool call of a model, and what came of it."""

    id: str
    name: str
    arguments: dict[str, object]
    result: str
    """What the model is shown."""
    error: tuple[str, str] | None = None
    """Type and message of what the tool raised."""
    has_run: bool = True
    """Whether there was a tool to run: without it there is no span."""


@dataclass(frozen=True)
class Message:
    """A message of any role."""

    role: str
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    """Of an assistant's message."""
    answers: str = ""
    """Of a tool's message: the id of the call."""

    def tokens(self) -> tuple[int, ...]:
        """Token ids, the same wherever the message stands."""
        return tokens(self.text + "".join(f"{call.id}{call.arguments}" for call in self.calls))


@dataclass(frozen=True)
class ModelCall:
    """One model call, with the tools that ran after it."""

    response_id: str
    seen: tuple[Message, ...]
    said: Message | None
    """None where the request failed."""
    error: tuple[str, str] | None = None

    @property
    def tools(self) -> tuple[ToolUse, ...]:
        """The tools that ran."""
        return tuple(call for call in self.said.calls if call.has_run) if self.said else ()


@dataclass
class Episode:
    """One attempt of an agent."""

    number: int
    agent: Agent
    dialect: str
    fault: str
    """One of ``FAULTS``; empty: it succeeded."""
    is_bare: bool
    """Whether every call is a trace of its own, without spans of agents and tools."""
    is_captured: bool
    edit: str
    """How the harness edits histories: ``trimmed``, ``summarised`` or not at all."""
    reward: float | None
    calls: list[ModelCall] = field(default_factory=list[ModelCall])

    @property
    def spans(self) -> int:
        """How many spans our store holds of it."""
        return len(self.calls) if self.is_bare else 1 + sum(1 + len(call.tools) for call in self.calls)


PROFILES: Final = ("success", "failure", "mix")


def of_profile(profile: str, count: int) -> list[Episode]:
    """The episodes of a profile among the first ``count`` of the mix."""
    wanted = {"success": (True,), "failure": (False,), "mix": (True, False)}[profile]
    return [found for found in episodes(count) if (not found.fault) in wanted]


def episodes(count: int, first: int = 0) -> Iterator[Episode]:
    """Episodes ``first`` to ``first + count``."""
    return (_Attempt(number).run() for number in range(first, first + count))


class _Attempt:
    """An agent at work: the history so far, and the episode that it becomes."""

    def __init__(self, number: int) -> None:
        self.random = random = Random(f"episode {number}")
        fault = FAULTS[number // 3 % len(FAULTS)] if number % 3 == 2 else ""
        is_bare = random.random() < 0.2
        edit = random.choices(("", "trimmed", "" if is_bare else "summarised"), (10, 1, 1))[0]
        has_reward = fault != "failed_request" and (bool(fault) or random.random() < 0.9)
        self.episode = Episode(
            number=number,
            agent=random.choice(AGENTS),
            dialect=random.choice(DIALECTS),
            fault=fault,
            is_bare=is_bare,
            is_captured=random.random() < 0.4,
            edit=edit,
            reward=float(not fault) if has_reward else None,
        )
        question = f"Case {number}, {random.getrandbits(64):x}: {text(random)}"
        self.history = [Message("system", self.episode.agent.instructions), Message("user", question)]

    def run(self) -> Episode:
        """The whole episode."""
        random, fault = self.random, self.episode.fault
        turns = random.choices(range(TURNS[0], TURNS[1] + 1), _TURN_SHARES)[0]
        if not fault:
            slip = random.randrange(turns - 2) if random.random() < 1 / 6 else -1
            for turn in range(turns - 1):
                self._turn(has_slip=turn == slip)
            self._say(text(random))
            return self.episode
        left = max(1, turns - 6) if fault == "loop" else turns - 2
        for _ in range(left):
            self._turn(has_slip=False)
        self._fail(fault)
        return self.episode

    def _turn(self, *, has_slip: bool) -> None:
        """Mostly tool calls, with an error among the results or without; at times words to the user, who goes on."""
        if has_slip:
            self._use((self._broken(),))
        elif self.random.random() < 0.08 and not (self.episode.is_bare and self.episode.edit):
            self._say(text(self.random))
            self.history.append(Message("user", text(self.random)))
        else:
            self._use(tuple(self._works() for _ in range(1 + (self.random.random() < 0.2))))

    def _fail(self, fault: str) -> None:
        if fault == "failed_request":
            self._ask(None, self.random.choice(_REQUEST_ERRORS))
            return
        if fault == "loop":
            again = self._works()
            for _ in range(5):
                self._use((ToolUse(self._id(), again.name, again.arguments, again.result),))
        else:
            makes = {"raised": self._broken, "told": self._told, "unknown_tool": self._unknown}
            self._use((makes.get(fault, self._invalid)(),))
        self._say(_APOLOGY + text(self.random))

    # --- the tool calls of a model ---

    def _id(self) -> str:
        return f"call_{self.random.getrandbits(96):024x}"

    def _chosen(self) -> tuple[Tool, dict[str, object]]:
        tool = self.random.choice(self.episode.agent.tools)
        return tool, tool.arguments(self.random)

    def _works(self) -> ToolUse:
        tool, arguments = self._chosen()
        found = text(self.random)
        result = json.dumps({"status": "ok", "result": found}) if self.random.random() < 0.5 else found
        return ToolUse(self._id(), tool.name, arguments, result)

    def _broken(self) -> ToolUse:
        tool, arguments = self._chosen()
        kind, message = self.random.choice(_ERRORS)
        raised = None if self.episode.is_bare else (kind, message)
        return ToolUse(self._id(), tool.name, arguments, f"Error: {kind}: {message}", raised)

    def _told(self) -> ToolUse:
        tool, arguments = self._chosen()
        kind, message = self.random.choice(_ERRORS)
        return ToolUse(self._id(), tool.name, arguments, json.dumps({"error": f"{kind}: {message}"}))

    def _unknown(self) -> ToolUse:
        name = f"{self._chosen()[0].name}_now"
        result = f"Error: {name} is not a valid tool, try one of {', '.join(t.name for t in self.episode.agent.tools)}."
        return ToolUse(self._id(), name, {"query": text(self.random)[:40]}, result, has_run=False)

    def _invalid(self) -> ToolUse:
        tool, arguments = self._chosen()
        missing = next(iter(arguments))
        del arguments[missing]
        message = f"1 validation error for {tool.name}: {missing}: Field required"
        raised = None if self.episode.is_bare else ("ValidationError", message)
        return ToolUse(self._id(), tool.name, arguments, f"Error: ValidationError: {message}", raised)

    # --- the history ---

    def _use(self, uses: tuple[ToolUse, ...]) -> None:
        self._ask(Message("assistant", calls=uses))
        self.history += [Message("tool", use.result, answers=use.id) for use in uses]

    def _say(self, words: str) -> None:
        self._ask(Message("assistant", words))

    def _ask(self, said: Message | None, error: tuple[str, str] | None = None) -> None:
        response_id = f"chatcmpl-{self.random.getrandbits(128):032x}"
        self.episode.calls.append(ModelCall(response_id, tuple(self._shown()), said, error))
        if said is not None:
            self.history.append(said)

    def _shown(self) -> list[Message]:
        """The history as the harness sends it; a summary stays."""
        if self.episode.edit == "trimmed":
            old = len(self.history) - 6
            return [
                Message("tool", "[old result removed]", answers=message.answers)
                if place < old and message.role == "tool"
                else message
                for place, message in enumerate(self.history)
            ]
        if self.episode.edit == "summarised" and len(self.history) > 10 and self.history[-1].role == "tool":
            last = max(place for place, message in enumerate(self.history) if message.role == "assistant")
            question = self.history[1].text.partition("\n\nSo far: ")[0]
            summary = Message("user", f"{question}\n\nSo far: {text(self.random)}")
            self.history = [self.history[0], summary, *self.history[last:]]
        return self.history

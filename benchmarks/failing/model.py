"""What a case of the blind set is, and the few words in which the cases are written."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

By = Literal["system", "user", "model", "tool"]
How = Literal["told", "raised"]
Language = Literal["en", "de", "es", "zh", "ja"]
Owner = Literal["policy", "tool", "environment", "harness", "user", "unknown", ""]


@dataclass(frozen=True)
class Fault:
    """An exception event: its type and its message."""

    type: str
    message: str


@dataclass(frozen=True)
class Call:
    """One tool call of the model; arguments that are a text are what the model wrote, JSON or not."""

    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True)
class Tool:
    """A tool the model was told of, with the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """One message, and the span it comes from.

    A turn of the model is a model-call span; a turn of a tool is the span of the oldest call that has none yet. The
    system's and the user's turns are messages only.
    """

    by: By
    text: str = ""
    calls: tuple[Call, ...] = ()
    fault: Fault | None = None
    """What the span raised."""
    finish: str = ""
    """The finish reason, where it is not the usual one; ``none`` where the span has none."""
    stream: bool = False
    recorded: bool = True
    """Whether the span holds the answer."""
    seen: str | None = None
    """What the model was handed of a tool's result, where that is something else than the result."""
    handed_back: bool = True
    """Whether the model was handed the tool's result at all."""


@dataclass(frozen=True)
class Expected:
    """The right answer. No owner: nothing failed. No class: only the owner is certain."""

    owner: Owner
    failure_class: str = ""
    recovered: bool = False


NOTHING = Expected("")


@dataclass(frozen=True)
class Case:
    """One episode of one agent, and whose failure it shows."""

    kind: str
    language: Language
    how: How
    description: str
    turns: tuple[Turn, ...]
    expected: Expected = NOTHING
    reward: float | None = 0.0
    """The episode's final reward; None where none was given."""
    tools: tuple[Tool, ...] = ()
    """The tools the model was told of; without any, those that it calls, with the arguments it calls them with."""
    crash: Fault | None = None
    """What the agent's own span raised."""
    model: str = "small-chat"
    provider: str = "openai"

    @property
    def id(self) -> str:
        """The case's name, which no other case has."""
        return f"{self.kind}/{self.language}/{self.how}"


def kind(name: str, expected: Expected, *cases: Case, reward: float | None = 0.0) -> tuple[Case, ...]:
    """The cases of one kind of failure: same answer and reward, another world each."""
    return tuple(replace(case, kind=name, expected=expected, reward=reward) for case in cases)


def told(language: Language, description: str, *turns: Turn, **more: Any) -> Case:
    """A case whose failure is in the texts only."""
    return Case("", language, "told", description, turns, **more)


def raised(language: Language, description: str, *turns: Turn, **more: Any) -> Case:
    """A case whose failure is the error of a span."""
    return Case("", language, "raised", description, turns, **more)


def tool(name: str, description: str, /, **properties: str) -> Tool:
    """A tool whose arguments are of these JSON types; a question mark after the type makes one optional."""
    types = {key: {"type": value.rstrip("?")} for key, value in properties.items()}
    required = [key for key, value in properties.items() if not value.endswith("?")]
    return Tool(name, description, {"type": "object", "properties": types, "required": required})


def system(text: str) -> Turn:
    """The instructions before the conversation."""
    return Turn("system", text)


def user(text: str) -> Turn:
    """What the user wrote."""
    return Turn("user", text)


def asks(name: str, arguments: Mapping[str, Any] | str | None = None, /, **named: Any) -> Turn:
    """The model calls one tool."""
    return Turn("model", calls=(Call(name, named if arguments is None else arguments),))


def gives(text: str, **more: Any) -> Turn:
    """The tool gives a result."""
    return Turn("tool", text, **more)


def raises(type_: str, message: str, **more: Any) -> Turn:
    """The tool raises; the model is handed the message, unless ``seen`` says otherwise."""
    return Turn("tool", fault=Fault(type_, message), **more)


def says(text: str, **more: Any) -> Turn:
    """The model writes a text and calls nothing."""
    return Turn("model", text, **more)


def fails(type_: str, message: str, **more: Any) -> Turn:
    """The model call raises and has no answer."""
    return Turn("model", fault=Fault(type_, message), recorded=False, **more)


def breaks_off(text: str, **more: Any) -> Turn:
    """The model's stream ends in the middle, without a finish reason."""
    return Turn("model", text, finish="none", stream=True, **more)


def unseen() -> Turn:
    """The model streams an answer that nobody recorded."""
    return Turn("model", stream=True, recorded=False)

"""What the scripted model answers: decided from the conversation alone, so that concurrent tasks need no state.

The first user message names a ticket, ``ticket-<script>-<number>``. Every script but `crash` and `delegate` is the
same: a tool call that fails, one that works, two parallel calls, and an answer.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from .text_protocols import dspy_turn

TICKET: Final = re.compile(r"ticket-([a-z]+)-\d+")
WEATHER: Final = "get_weather"
POPULATION: Final = "get_population"
RESEARCHER: Final = "researcher"
"""The second agent, and part of the name of the tool that asks it or hands the conversation to it."""
CLAUDE_AGENT: Final = "Agent"
"""Claude Code's tool that asks another agent; who has it has the other's tools too."""
HANDOFFS: Final = frozenset({"handoff", "delegate_task_to_member", CLAUDE_AGENT})
"""Tools of LlamaIndex, Agno and Claude Code that ask the agent that their arguments name."""
REPORT: Final = ((WEATHER, "Atlantis"), (WEATHER, "Oslo"), (WEATHER, "Paris"), (POPULATION, "Paris"))
"""The tool calls of a task, in order; the first one fails."""
SHORT: Final = ((WEATHER, "Oslo"),)
"""Those of the scripts `delegate` and `crash`."""
MODEL: Final = "scripted"
"""The model's name of itself."""
SCHEMA_ANSWER: Final = {"city": "Oslo", "degrees": 7}
"""The answer in the form of a schema."""
COMMAND: Final = "echo 'Oslo has 7 degrees' > report.txt"
"""What the script `shell` lets a coding agent run."""
FINAL_ANSWER: Final = "final_answer"
"""smolagents' tool that ends a run."""


@dataclass(frozen=True)
class Call:
    """A tool call of the model."""

    name: str
    arguments: dict[str, Any]


@dataclass
class Conversation:
    """What a request says, in any API's format."""

    texts: list[str] = field(default_factory=list[str])
    """Texts of the system and user messages."""
    tools: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Name → JSON schema of the arguments."""
    called: list[str] = field(default_factory=list[str])
    """Names of the tools that the model has called."""
    results: int = 0
    has_schema: bool = False
    """Whether the answer must have the form of a JSON schema."""
    is_stream: bool = False
    model: str = MODEL

    @property
    def ticket(self) -> str:
        """The ticket that the conversation is about; empty without one."""
        return next((match[0] for text in self.texts if (match := TICKET.search(text))), "")


@dataclass(frozen=True)
class Reply:
    """A turn of the model: a text, tool calls, or a refusal with an HTTP status."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    status: int = 200


def decide(conversation: Conversation) -> Reply:
    """Return the model's next turn."""
    match = TICKET.search(conversation.ticket)
    script = match[1] if match else ""
    if script == "crash" and conversation.results:
        return Reply(status=400)
    calls = [(name, {"city": city}) for name, city in (SHORT if script in {"crash", "delegate"} else REPORT)]
    answer = f"Oslo has 7 degrees, Paris 18 degrees. Done with {conversation.ticket}."
    if text := dspy_turn(conversation.texts, calls, conversation.results, answer):
        return Reply(text)
    if script in {"schema", "shell", "delegate"}:
        return {"schema": _in_schema, "shell": _command, "delegate": _delegate}[script](conversation)
    turns = (SHORT,) if script == "crash" else (REPORT[:1], REPORT[1:2], REPORT[2:])
    if conversation.results < len(turns):
        return _calls(conversation, *turns[conversation.results])
    return _answer(conversation, answer)


def _delegate(conversation: Conversation) -> Reply:
    """Hand the question to another agent, where one is offered; there, call one tool and answer."""
    question = f"What is the weather in Oslo? It is for {conversation.ticket}."
    for name, schema in conversation.tools.items():
        if (RESEARCHER in name or name in HANDOFFS) and name not in conversation.called:
            return Reply(calls=(Call(name, _arguments(schema, question)),))
    weather = _offered(conversation, WEATHER)
    if CLAUDE_AGENT not in conversation.tools and weather in conversation.tools and weather not in conversation.called:
        return _calls(conversation, *SHORT)
    return _answer(conversation, f"Oslo has 7 degrees. Done with {conversation.ticket}.")


def _in_schema(conversation: Conversation) -> Reply:
    """Answer in the form of a schema: as text where one is given, else by a tool that takes such an answer."""
    if conversation.has_schema:
        return Reply(json.dumps(SCHEMA_ANSWER))
    for name, schema in conversation.tools.items():
        if SCHEMA_ANSWER.keys() <= (schema.get("properties") or {}).keys():
            return Reply(calls=(Call(name, SCHEMA_ANSWER),))
    return Reply("The request has no schema.")


def _command(conversation: Conversation) -> Reply:
    """Run a command by the tool of a coding agent that takes one, and answer."""
    if conversation.results:
        return _answer(conversation, f"Oslo has 7 degrees. Done with {conversation.ticket}.")
    for name, schema in conversation.tools.items():
        for argument in ("cmd", "command"):
            if argument in (schema.get("properties") or {}):
                return Reply(calls=(Call(name, {argument: COMMAND}),))
    return Reply("No tool takes a command.")


def _arguments(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """``text`` for every required argument of a schema, and the second agent where an agent is wanted."""
    agents = [name for name in schema.get("properties") or () if "agent" in name or "member" in name]
    return dict.fromkeys(schema.get("required") or (), text) | dict.fromkeys(agents, RESEARCHER)


def _calls(conversation: Conversation, *calls: tuple[str, str]) -> Reply:
    return Reply(calls=tuple(Call(_offered(conversation, name), {"city": city}) for name, city in calls))


def _offered(conversation: Conversation, name: str) -> str:
    """The name under which the framework offers a tool: some put a plugin's name before it."""
    return next((offered for offered in conversation.tools if offered.endswith(name)), name)


def _answer(conversation: Conversation, text: str) -> Reply:
    if FINAL_ANSWER in conversation.tools:
        return Reply(calls=(Call(FINAL_ANSWER, {"answer": text}),))
    return Reply(text)


def digest(request: object, *salt: object) -> str:
    """An id that is unique to a request, and the same whenever it is sent: 24 hexadecimal digits."""
    text = json.dumps([request, *salt], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]

"""What a fault is, and how the common ones are made."""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from .script import Raised, Script, Turn, says

_Wording = TypeVar("_Wording", str, Raised)


class Truth(NamedTuple):
    """What was done to an episode."""

    error_class: str
    owner: str
    turn: int
    where: str
    """``call``, ``tool`` or ``program``, ``beside``, ``inner call`` or ``inner tool``: whose span is to blame."""


Fault = Callable[[random.Random, Script, int], Truth]
"""Changes turn ``n`` of a script, which holds a tool call that was answered."""


APOLOGIES: Final = (
    "I apologize, but I could not finish this. Please try again later.",
    "There seems to be a problem on our side. Is there anything else I can do for you?",
    "Unfortunately that did not work.",
)


def worded(rng: random.Random, script: Script, wordings: Sequence[_Wording]) -> _Wording:
    """One of the wordings of a fault, which the script remembers."""
    script.wording = rng.randrange(len(wordings))
    return wordings[script.wording]


def policy(error_class: str, place: int) -> Truth:
    """The call of a turn is to blame."""
    return Truth(error_class, "policy", place, "call")


def tool_fault(error_class: str, owner: str, *raised: Raised) -> Fault:
    """A tool that raises, shown to the policy in one of three forms."""

    def inject(rng: random.Random, script: Script, place: int) -> Truth:
        kind, said = worded(rng, script, raised)
        turn = script.turns[place]
        form = rng.randrange(3)
        turn.tool_raised = (kind, said) if form < 2 else None
        shown = f"Error: {kind}: {said}" if form == 2 else f"Error executing tool: {said}"
        turn.answer = "The tool could not be used." if form == 0 else shown
        return Truth(error_class, owner, place, "tool")

    return inject


def model_fault(error_class: str, owner: str, *raised: Raised) -> Fault:
    """A model call that fails."""

    def inject(rng: random.Random, script: Script, place: int) -> Truth:
        found = worded(rng, script, raised)
        turn = script.turns[place]
        turn.said, turn.answer, turn.raised = None, None, found
        if len(script.turns) == place + 1:
            script.raised, script.reward = found, None
        return Truth(error_class, owner, place, "call")

    return inject


def output_fault(error_class: str, owner: str, finish: str, *texts: str, is_streaming: bool = False) -> Fault:
    """An answer that is not as it should be."""

    def inject(rng: random.Random, script: Script, place: int) -> Truth:
        turn = script.turns[place]
        call = turn.call or {}
        text = worded(rng, script, texts).replace(
            "CALL", json.dumps({"name": call["name"], "arguments": call["arguments"]})
        )
        script.turns[place] = Turn(says(text), finish=finish, is_streaming=is_streaming)
        return Truth(error_class, owner, place, "call")

    return inject


def program_fault(error_class: str, owner: str, *raised: Raised) -> Fault:
    """A program that raises after a tool has worked."""

    def inject(rng: random.Random, script: Script, place: int) -> Truth:
        turn = script.turns[place]
        turn.answer = turn.answer if is_fine(turn.answer) else "[]"
        script.raised, script.reward = worded(rng, script, raised), None
        return Truth(error_class, owner, place, "program")

    return inject


def is_fine(answer: str | None) -> bool:
    """Whether a tool's answer tells of no error."""
    return answer is not None and not re.match(r"\s*error", answer, re.IGNORECASE)

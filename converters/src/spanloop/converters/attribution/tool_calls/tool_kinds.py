"""Classify tools by name as query, mutation, note or submit, and recognise empty results.

An empty result of a query is suspicious; a mutation may return nothing. A note needs no result, and a submit ends the
episode.
"""

import re
from typing import Final

_QUERIES: Final = re.compile(
    r"(?:^|[_.\-/ ])(?:get|search|find|list|fetch|read|look|lookup|query|load|retrieve|check|calculate|compute|show"
    r"|view|select|describe|count|ask)(?:$|[_.\-/ A-Z])"
)
_DOES: Final = re.compile(
    r"(?:^|[_.\-/ ])(?:add|approve|assign|book|cancel|change|close|create|delete|edit|exchange|insert|issue|modify|move"
    r"|order|pay|place|post|rebook|refund|register|remove|reserve|return|schedule|send|set|update|write)"
    r"(?:$|[_.\-/ A-Z])"
)
_NOTES: Final = re.compile(
    r"(?:^|[_.\-/ ])(?:think|thought|thinking|reflect|reason|plan|note|scratchpad|memo)(?:$|[_.\-/ A-Z])"
)
_HANDS_IN: Final = re.compile(
    r"(?:^|[./])(?:final[_-]?(?:[aA]nswer|[rR]esult|[rR]esponse|[oO]utput)|finish(?:[_-](?:task|episode|conversation))?"
    r"|submit(?:[_-](?:final[_-])?(?:answer|result|solution|response))?|done|terminate(?:[_-](?:task|conversation|chat))?"
    r"|complete[_-]task|task[_-]completed?|attempt[_-]completion|end[_-](?:task|conversation|call|chat|episode)|give[_-]up)$"
)
_HANDS_OVER: Final = re.compile(r"(?:transfer|hand[_-]?(?:off|over)|escalate)[_-]to[_-](?:a[_-])?human")
_HAND_OVER: Final = re.compile(
    r"(?:^|[\W_])(?:transfer(?:red)?[\W_]to|hand[\W_]?(?:off|over)|delegate[\W_]to|escalate[\W_]to)(?:$|[\W_]|[A-Z])"
    r"|^(?:transferTo|handOff|handoff|delegateTo)",
)
_NOTHING: Final = frozenset(
    {"", "null", "none", "nil", "{}", '""', "[null]", "undefined", "nan", "(empty)"}
    | {"no output", "(no output)", "<no output>"}
)
_NOTHING_WITHIN: Final = re.compile(r'\{\s*"\w{1,40}"\s*:\s*(?:null|""|\{\s*\}|None)\s*\}')
"""An object around nothing."""


def is_query(tool: str) -> bool:
    """Whether a tool's name is that of a question."""
    return _QUERIES.search(tool) is not None


def does_something(tool: str) -> bool:
    """Whether a tool's name is that of a deed: after it things are not what they were."""
    return _DOES.search(tool) is not None and not is_query(tool)


def is_note(tool: str) -> bool:
    """Whether a tool's name is that of one that takes down what the policy thinks."""
    return _NOTES.search(tool) is not None


def ends(tool: str, *, is_answered: bool) -> bool:
    """Whether a tool is one that ends an episode: it hands in a result, or has handed over to a person."""
    return _HANDS_IN.search(tool) is not None or (is_answered and _HANDS_OVER.search(tool) is not None)


def is_hand_over(tool: str) -> bool:
    """Whether a tool's name is that of a hand-over to another agent."""
    return _HAND_OVER.search(tool) is not None


def is_void(content: str) -> bool:
    """Whether an answer holds nothing at all; an empty list holds that nothing was found."""
    stripped = content.strip()
    return stripped.casefold() in _NOTHING or _NOTHING_WITHIN.fullmatch(stripped) is not None

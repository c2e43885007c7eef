"""Frameworks that write tool calls and results into the texts of messages."""

import json
import re
from typing import Final

_SMOLAGENTS: Final = r"^Observation:|^Error:\n"
_DSPY: Final = r"^\[\[ ## observation_\d+ ## \]\]"
_OBSERVATION: Final = re.compile(f"{_SMOLAGENTS}|{_DSPY}", re.MULTILINE)
_CALL: Final = re.compile(r"'function': \{'name': '(\w+)'")


def read_calls(texts: list[str]) -> list[str]:
    """The names of the tools that an assistant's message says were called."""
    return [name for text in texts for name in _CALL.findall(text)]


def read_observations(texts: list[str]) -> int:
    """How many tool results a user's message holds."""
    return sum(len(_OBSERVATION.findall(text)) for text in texts)


def dspy_turn(texts: list[str], calls: list[tuple[str, dict[str, str]]], results: int, answer: str) -> str:
    """The next turn for DSPy's ReAct, which wants one tool call at a time, in fields; empty for other frameworks."""
    fields: dict[str, str] = {}
    if any("[[ ## next_tool_name ## ]]" in text for text in texts):
        name, arguments = calls[results] if results < len(calls) else ("finish", dict[str, str]())
        thought = "I look it up." if results < len(calls) else "That is all."
        fields = {"next_thought": thought, "next_tool_name": name, "next_tool_args": json.dumps(arguments)}
    elif any("[[ ## reasoning ## ]]" in text for text in texts):
        fields = {"reasoning": "The tools answered.", "answer": answer}
    return (
        "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in (fields | {"completed": ""}).items())
        if fields
        else ""
    )

"""Frameworks that write tool calls and results into the texts of messages."""

import re
from typing import Final

_OBSERVATION: Final = re.compile(r"^(?:Observation:|Error:\n)", re.MULTILINE)  # smolagents
_CALL: Final = re.compile(r"'function': \{'name': '(\w+)'")


def read_calls(texts: list[str]) -> list[str]:
    """The names of the tools that an assistant's message says were called."""
    return [name for text in texts for name in _CALL.findall(text)]


def read_observations(texts: list[str]) -> int:
    """How many tool results a user's message holds."""
    return sum(len(_OBSERVATION.findall(text)) for text in texts)

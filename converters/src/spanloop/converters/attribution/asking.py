"""Tools that are called for what they answer, told by their names, and answers that hold nothing.

A tool that does something may well answer nothing; of one that is asked for something that is strange.
"""

import re
from typing import Final

_ASKED: Final = re.compile(
    r"(?:^|[_.\-/ ])(?:get|search|find|list|fetch|read|look|lookup|query|load|retrieve|check|calculate|compute|show"
    r"|view|select|describe|count|ask)(?:$|[_.\-/ A-Z])"
)
_NOTHING: Final = frozenset({"", "null", "none", "{}", '""', "undefined", "nan"})


def is_asked(tool: str) -> bool:
    """Whether a tool's name is that of a question."""
    return _ASKED.search(tool) is not None


def is_void(content: str) -> bool:
    """Whether an answer holds nothing at all; an empty list holds that nothing was found."""
    return content.strip().casefold() in _NOTHING

"""Fill a text with a task's fields: ``{name}`` is replaced, ``{{name}}`` is the text ``{name}``.

Braces around anything but a name stay as they are, so that JSON and code can stand in a command.
"""

import re
from collections.abc import Mapping
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\{\{(?P<escaped>\w+)\}\}|\{(?P<name>[A-Za-z_]\w*)\}")


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names that ``text`` refers to, each once."""
    return tuple(dict.fromkeys(match["name"] for match in _PLACEHOLDER.finditer(text) if match["name"]))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each placeholder by its value.

    Raises:
        KeyError: A name has no value.
    """
    return _PLACEHOLDER.sub(lambda match: values[match["name"]] if match["name"] else f"{{{match['escaped']}}}", text)

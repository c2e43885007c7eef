"""The text of a stage: ``setting=value`` words, as a shell splits them.

Invariant: :func:`parse_stage` reverses :func:`format_stage`. Names and values are checked by ``JobSpec``.
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, cast


def format_stage(settings: Mapping[str, Any]) -> str:
    """Return the text of ``settings``; a list gives one word for each of its items."""
    words: list[str] = []
    for name, value in settings.items():
        items = cast("Iterable[Any]", value) if isinstance(value, list | tuple) else (value,)
        words += [f"{name}={_text(item)}" for item in items]
    return shlex.join(words)


def parse_stage(text: str, lists: frozenset[str]) -> dict[str, Any]:
    """Return the settings of a stage; their values are texts, or lists of texts for the names in ``lists``.

    Raises:
        ValueError: The text is not made of ``setting=value`` words.
    """
    settings: dict[str, Any] = {}
    for word in shlex.split(text):
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} in a stage: expected SETTING=VALUE, as in 'kind=dpo steps=20'")
        if name in lists:
            settings.setdefault(name, []).append(value)
        elif name in settings:
            raise ValueError(f"{name} occurs twice in the stage {text!r}")
        else:
            settings[name] = value
    return settings


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

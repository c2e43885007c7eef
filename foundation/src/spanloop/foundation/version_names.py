"""How model versions are written: ``name@version``, ``name@alias``, or ``name`` for the newest version."""

import re
from typing import Final

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VERSION_PATTERN: Final = r"v[1-9][0-9]{0,8}"
ALIAS_PATTERN: Final = r"([A-Za-uw-z][A-Za-z0-9._-]{0,63}|v[A-Za-z._-][A-Za-z0-9._-]{0,62})"
"""Of an alias: not v and a digit, which begin a version."""
REFERENCE_PATTERN: Final = rf"{NAME_PATTERN}(@({VERSION_PATTERN}|{ALIAS_PATTERN}))?"
EXACT_PATTERN: Final = rf"{NAME_PATTERN}@{VERSION_PATTERN}"
CHAMPION: Final = "champion"
"""The alias of the version that a candidate must beat."""
CANDIDATE: Final = "candidate"
"""The alias of a version that was not decided about yet."""


def is_reference(text: str) -> bool:
    """Whether ``text`` is ``name``, ``name@version`` or ``name@alias``."""
    return re.fullmatch(REFERENCE_PATTERN, text) is not None


def is_exact(text: str) -> bool:
    """Whether ``text`` is ``name@version``, which always means the same version."""
    return re.fullmatch(EXACT_PATTERN, text) is not None


def is_version(text: str) -> bool:
    """Whether ``text`` is a version, as in ``v3``."""
    return re.fullmatch(VERSION_PATTERN, text) is not None


def is_alias(text: str) -> bool:
    """Whether ``text`` can be an alias."""
    return re.fullmatch(ALIAS_PATTERN, text) is not None


def number_of(version: str) -> int:
    """Return the number of a version: 3 for ``v3``."""
    return int(version.removeprefix("v"))

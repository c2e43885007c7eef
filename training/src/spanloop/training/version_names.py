"""How model versions are written: ``name@version``, or ``name`` for the newest version."""

import re
from typing import Final

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VERSION_PATTERN: Final = r"v[1-9][0-9]{0,8}"
REFERENCE_PATTERN: Final = rf"{NAME_PATTERN}(@{VERSION_PATTERN})?"


def is_reference(text: str) -> bool:
    """Whether ``text`` is ``name`` or ``name@version``."""
    return re.fullmatch(REFERENCE_PATTERN, text) is not None

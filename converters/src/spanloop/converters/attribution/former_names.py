"""Names that built-in rules had before: settings and stored failures may hold them.

Invariant: a failure has the same fingerprint under either name, so a renamed rule starts no new group.
"""

from collections.abc import Mapping
from typing import Final

FORMER_NAMES: Final[Mapping[str, str]] = {"cannot_be": "impossible_action", "wrongly_given": "wrong_user_value"}
"""Former name → name."""

FINGERPRINT_NAMES: Final[Mapping[str, str]] = {name: former for former, name in FORMER_NAMES.items()}
"""Name → the one that fingerprints contain; rules without a former name are missing."""


def current_name(rule: str) -> str:
    """Return the present name of a rule."""
    return FORMER_NAMES.get(rule, rule)

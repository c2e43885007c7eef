"""What a caller may choose about a conversion."""

from dataclasses import dataclass
from typing import Final

CONVERTER_VERSION: Final = "3"
"""Goes up whenever the same spans would give other rows; the pipeline then reconverts what it touches."""


@dataclass(frozen=True)
class Options:
    """Choices, with defaults that hold for most apps."""

    success_threshold: float = 0.5
    """An episode whose reward reaches this has succeeded, unless its score's label says otherwise."""

    session_is_episode: bool = False
    """Whether ``session.id`` joins traces as a conversation id does. Off: a session often holds many attempts."""

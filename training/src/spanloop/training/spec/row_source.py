"""Where the rows of a job come from, and which of them a job asks for."""

from enum import StrEnum


class RowSource(StrEnum):
    """Where the tokens of a row come from."""

    CAPTURED = "captured"
    """The policy sampled them, and they were recorded."""
    RENDERED = "rendered"
    """An episode's messages, rendered with the base's chat template."""
    DIALOG = "dialog"
    """A dialog file, rendered with the base's chat template."""


class Tokens(StrEnum):
    """Which rows of episodes a job takes."""

    ANY = "any"
    """Captured tokens where an episode has some of the base's tokenizer, else its messages as rendered text."""
    CAPTURED = "captured"
    """Captured tokens only."""
    RENDERED = "rendered"
    """Rendered text only, for episodes with captured tokens too."""
    NONE = "none"
    """No episodes: dialog files alone."""

"""Where the rows of a job come from."""

from enum import StrEnum


class RowSource(StrEnum):
    """Where the tokens of a row come from."""

    CAPTURED = "captured"
    """The policy sampled them, and they were recorded."""
    RENDERED = "rendered"
    """An episode's messages, rendered with the base's chat template."""
    DIALOG = "dialog"
    """A dialog file, rendered with the base's chat template."""

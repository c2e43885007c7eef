"""Where the rows of a job come from."""

from enum import StrEnum


class RowSource(StrEnum):
    """Where the tokens of a row come from."""

    CAPTURED = "captured"
    """The policy sampled them, and they were recorded."""
    RENDERED = "rendered"
    """An episode's messages, rendered with the base's chat template."""
    CORRECTED = "corrected"
    """A right answer that a person wrote, after the conversation that it answers, rendered likewise."""
    DIALOG = "dialog"
    """A dialog file, rendered with the base's chat template."""

"""SFT."""

from .text import Imitation


class Sft(Imitation):
    """Imitation of stored actions."""

    name = "sft"
    title = "SFT"

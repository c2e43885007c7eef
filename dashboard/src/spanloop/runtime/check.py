"""The result of one check of ``spanloop doctor``."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    """The command that fixes it, or an instruction."""
    needed: bool = True
    """False for an optional part."""
    repair: Callable[[Callable[[str, str], None]], None] | None = None
    """The function that ``--fix`` runs; it takes a callback for a title and a line of progress."""

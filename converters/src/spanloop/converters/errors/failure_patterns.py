"""The table of words by which failures are told: ``attribution/patterns.toml``, read and compiled once.

Invariant: a pattern reads at most ``MOST_TEXT`` characters, and takes time about linear in them: no unbounded repeat
stands within another one.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Final, cast

from spanloop.converters.enums import FaultOwner

from .pattern_literals import required_literals

MOST_TEXT: Final = 20_000
"""Characters from the start of a text that patterns look at."""


@dataclass(frozen=True, eq=False)
class FailurePattern:
    """One line of the table."""

    name: str
    regex: re.Pattern[str]
    error_class: str
    """The class of error that a match shows, unless the calling rule knows better."""
    owner: FaultOwner
    confidence: float
    """0 to 1."""
    examples: tuple[tuple[str, str], ...]
    """(product, text of it that matches): of two products or more, or the words are one product's and stand nowhere."""

    @cached_property
    def literals(self) -> frozenset[str]:
        """Texts of which every match contains one, in lower case."""
        return required_literals(self.regex)

    def search(self, text: str) -> re.Match[str] | None:
        """The first match anywhere in ``text``; looking for literals first takes a fraction of the time."""
        lowered = text[:MOST_TEXT].lower()
        return self.regex.search(text, 0, MOST_TEXT) if any(part in lowered for part in self.literals) else None

    def match(self, text: str) -> re.Match[str] | None:
        """The match at the start of ``text``."""
        return self.regex.match(text, 0, MOST_TEXT)


@cache
def _file() -> dict[str, dict[str, dict[str, object]]]:
    text = (files("spanloop.converters") / "attribution" / "patterns.toml").read_text("utf-8")
    return cast("dict[str, dict[str, dict[str, object]]]", tomllib.loads(text))


@cache
def _table() -> dict[str, dict[str, FailurePattern]]:
    groups = _file()
    fragments = cast("dict[str, str]", groups["fragments"])
    return {
        group: {name: _pattern(name, fields, fragments) for name, fields in entries.items()}
        for group, entries in groups.items()
        if group != "fragments"
    }


def _pattern(name: str, fields: dict[str, object], fragments: dict[str, str]) -> FailurePattern:
    regex = str(fields["regex"])
    for fragment, value in fragments.items():
        regex = regex.replace(f"<<{fragment}>>", value)
    flags = re.RegexFlag(0)
    for letter in str(fields.get("flags", "i")):
        flags |= re.RegexFlag[letter.upper()]
    shows = cast("dict[str, str]", fields["shows"])
    compiled = re.compile(regex.replace("\n", ""), flags)
    owner, confidence = FaultOwner(shows["owner"]), float(shows["confidence"])
    examples = tuple(cast("dict[str, str]", fields["examples"]).items())
    return FailurePattern(name, compiled, shows["class"], owner, confidence, examples)


def failure_patterns(group: str) -> tuple[FailurePattern, ...]:
    """The patterns of a group of the table, in order of precedence."""
    return tuple(_table()[group].values())


def failure_pattern(group: str, name: str = "") -> FailurePattern:
    """One pattern of a group; without a name, the one that is called as its group."""
    return _table()[group][name or group]


def all_patterns() -> tuple[FailurePattern, ...]:
    """Every pattern of the table."""
    return tuple(pattern for entries in _table().values() for pattern in entries.values())

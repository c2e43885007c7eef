"""Redaction rules: which texts and attributes must not be stored, and the rules file.

Invariant: an accepted rule applies to every span and log record. An error in a file is reported with the rule and the
key, before the collector receives its first span.
"""

import fnmatch
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir

from .re2_patterns import Pattern, PatternError, make_prefilter

MASK: Final = "__REDACTED__"
"""Converters recognise a text with this mark as incomplete and do not train on it."""
REDACT_ENV: Final = "SPANLOOP_REDACT"
"""A rules file; the default is ``redaction.toml`` in the data directory, if it exists."""
FILE_NAME: Final = "redaction.toml"
KNOWN_LEAKS: Final = "known_leaks"
"""The rule that is always active."""

MatchFilter: TypeAlias = Callable[[bytes, int, int], bool]


@dataclass(frozen=True)
class Rule:
    """One validated rule."""

    name: str
    glob: str
    """Matches the whole name of an attribute; empty applies the rule to every text."""
    prefilter: str | None
    """Matches every encoded request in which the rule may match; None when there is no such pattern."""
    pattern: Pattern | None
    """None drops or masks the whole attribute."""
    is_dropped: bool
    replacement: str
    is_match: MatchFilter | None = None
    """Confirms a match of the pattern; None confirms every match."""

    def applies_to(self, name: str) -> bool:
        """Return whether the rule applies to attributes of this name."""
        return not self.glob or fnmatch.fnmatchcase(name.lower(), self.glob.lower())


def _is_card(text: bytes, start: int, end: int) -> bool:
    """Return whether digits have a valid checksum (Luhn, ISO/IEC 7812-1) and are not part of a longer number."""
    if text[max(0, start - 1) : start] in {b".", b"-"} or re.match(rb"[.-]\d", text[end : end + 2]):
        return False
    digits = [byte - 48 for byte in text[start:end] if 48 <= byte < 58]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


class _BuiltinRule(NamedTuple):
    """A rule that a rules file may enable by name."""

    pattern: str
    is_match: MatchFilter | None = None
    prefilter: str | None = None
    """Default: derived from the pattern."""


_BUILTIN: Final[Mapping[str, _BuiltinRule]] = {
    "emails": _BuiltinRule(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.[A-Za-z]{2,24}"),
    "credit_cards": _BuiltinRule(
        r"\b(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6011|65\d{2})[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b"
        r"|\b3[47]\d{2}[ -]?\d{6}[ -]?\d{5}\b",
        _is_card,
    ),
    "bearer_tokens": _BuiltinRule(
        r"(?i)\b(?:bearer|basic) +[a-z0-9._~+/=-]{16,}|\beyj[a-z0-9_-]{10,}\.eyj[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}",
        prefilter=r"(?i)(?:bearer|basic) +[a-z0-9]|eyj[a-z0-9_-]{10,}",
    ),
    "api_keys": _BuiltinRule(
        r"\b(?:sk-[A-Za-z0-9_-]{20,}|gh[opusr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{20,}"
        r"|AKIA[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{35}|xox[abprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{30,}"
        r"|spanloop_[0-9a-f]{8}_[A-Za-z0-9_-]{40,})"
    ),
}


def builtin(name: str) -> Rule:
    """Return a built-in rule.

    Raises:
        KeyError: No built-in rule has this name.
    """
    rule = _BUILTIN[name]
    prefilter = rule.prefilter or make_prefilter(rule.pattern)
    return Rule(name, "", prefilter, Pattern(rule.pattern), is_dropped=False, replacement=MASK, is_match=rule.is_match)


class _RuleEntry(BaseModel):
    """A ``[[rule]]`` of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9_-]+$", max_length=64)
    """The name in counts, and in ``spanloop.redacted`` of the spans."""
    attribute: str = Field(default="", max_length=512)
    """A glob over attribute names; the names of nested values are joined by dots."""
    pattern: str = ""
    """RE2 pattern."""
    action: Literal["", "mask", "drop"] = ""
    """Default: mask the pattern's matches; without a pattern, drop the attribute."""
    replacement: str = Field(default=MASK, min_length=1, max_length=256)


class _RulesFile(BaseModel):
    """A rules file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    builtin: tuple[str, ...] = ()
    rule: tuple[_RuleEntry, ...] = ()


def load_rules(data_dir: DataDir, path: Path | None = None) -> Sequence[Rule]:
    """Load the rules of a named file, else of ``$SPANLOOP_REDACT``, else of the data directory; none without a file.

    Raises:
        ConfigurationError: The file does not exist or is invalid.
    """
    named_path = path or (Path(text) if (text := os.environ.get(REDACT_ENV)) else None)
    if named_path is None:
        default_path = data_dir.path / FILE_NAME
        return read_rules(default_path) if default_path.exists() else ()
    return read_rules(named_path)


def read_rules(path: Path) -> Sequence[Rule]:
    """Read the rules of a file.

    Raises:
        ConfigurationError: The file does not exist or is invalid.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _invalid(path, f"it cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise _invalid(path, str(error)) from error
    try:
        rules_file = _RulesFile.model_validate(content)
    except ValidationError as error:
        raise _invalid(path, _describe_error(error, content)) from error
    rules = [_builtin(path, name) for name in rules_file.builtin] + [_rule(path, entry) for entry in rules_file.rule]
    names = [KNOWN_LEAKS, *(rule.name for rule in rules)]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise _invalid(path, f"{', '.join(duplicates)} is the name of two rules, expected a unique name for each")
    return rules


def _builtin(path: Path, name: str) -> Rule:
    try:
        return builtin(name)
    except KeyError:
        raise _invalid(path, f"builtin: got {name!r}, expected some of {', '.join(_BUILTIN)}") from None


def _rule(path: Path, entry: _RuleEntry) -> Rule:
    where = f"rule {entry.name!r}"
    if not entry.attribute and not entry.pattern:
        raise _invalid(path, f"{where} has neither attribute nor pattern, expected at least one")
    if entry.pattern and entry.action == "drop":
        raise _invalid(path, f"{where} has a pattern and action 'drop': a pattern masks what it matches")
    if not entry.pattern:
        is_dropped = entry.action != "mask"
        prefilter = _glob_prefilter(entry.attribute)
        return Rule(entry.name, entry.attribute, prefilter, None, is_dropped=is_dropped, replacement=entry.replacement)
    try:
        pattern = Pattern(entry.pattern)
    except PatternError as error:
        raise _invalid(
            path, f"{where}, pattern {entry.pattern!r}: {error} (RE2's syntax, without lookaround)"
        ) from error
    if pattern.matches(b""):
        raise _invalid(path, f"{where}, pattern {entry.pattern!r} matches the empty text")
    prefilter = make_prefilter(entry.pattern)
    return Rule(entry.name, entry.attribute, prefilter, pattern, is_dropped=False, replacement=entry.replacement)


def _glob_prefilter(glob: str) -> str | None:
    """Return a pattern that matches the encoded attributes of such names, in which nested names are split at dots."""
    longest = max(re.split(r"\[[^\]]*\]|[*?.]", glob), key=len)
    return f"(?i:{re.escape(longest)})" if longest.isascii() and longest else None


def _describe_error(error: ValidationError, content: Mapping[str, object]) -> str:
    """Describe the first error, with the rule and key as in the file."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    rules = content.get("rule")
    if len(first["loc"]) > 1 and first["loc"][0] == "rule" and isinstance(rules, list):
        rule: object = cast("list[object]", rules)[int(first["loc"][1])]
        name: object = cast("dict[str, object]", rule).get("name") if isinstance(rule, dict) else None
        where = f"rule {name if isinstance(name, str) else int(first['loc'][1]) + 1!r}, " + ".".join(
            str(part) for part in first["loc"][2:]
        )
    return f"{where}: {first['msg']}, got {str(first['input'])[:80]!r}"


def _invalid(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"The redaction rules in {path} are not usable: {what}.",
        next_step="Fix the file (docs/how-to/redact.md has examples) and try it with: spanloop redact test FILE",
    )

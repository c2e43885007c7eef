"""Which texts and attributes nobody may store: the rules, and the file that they are written in.

Invariant: a rule that is accepted does what it says for every span and log record; whatever is wrong with a file is
said, with the rule and the key, before the collector takes its first span.
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

from spanloop.datadir import DataDir
from spanloop.semconv.errors import ConfigurationError

from .re2_patterns import Pattern, PatternError, prefilter_pattern

MASK: Final = "__REDACTED__"
"""What converters know as a text that is not the whole text, and so not train on."""
REDACT_ENV: Final = "SPANLOOP_REDACT"
"""A rules file; default is ``redaction.toml`` in the data directory, if there is one."""
FILE_NAME: Final = "redaction.toml"
KNOWN_LEAKS: Final = "known_leaks"
"""The rule that is always there."""

Counts: TypeAlias = Callable[[bytes, int, int], bool]


@dataclass(frozen=True)
class Rule:
    """One rule, checked."""

    name: str
    glob: str
    """Of the attribute's name, whole; empty stands for every text."""
    prefilter: str | None
    """Found in all bytes in which the rule may match; None when there is no such pattern."""
    pattern: Pattern | None
    """None drops or masks the whole attribute."""
    is_dropped: bool
    replacement: str
    counts: Counts | None = None
    """Whether a match counts."""

    def applies_to(self, name: str) -> bool:
        """Whether it holds for attributes of that name."""
        return not self.glob or fnmatch.fnmatchcase(name.lower(), self.glob.lower())


def _is_card(text: bytes, start: int, end: int) -> bool:
    """Digits that add up (Luhn, ISO/IEC 7812-1), and are no part of a longer number."""
    if text[max(0, start - 1) : start] in {b".", b"-"} or re.match(rb"[.-]\d", text[end : end + 2]):
        return False
    digits = [byte - 48 for byte in text[start:end] if 48 <= byte < 58]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


class _Builtin(NamedTuple):
    """A rule that is there to be switched on."""

    pattern: str
    counts: Counts | None = None
    prefilter: str | None = None
    """Default: the pattern's own."""


_BUILTIN: Final[Mapping[str, _Builtin]] = {
    "emails": _Builtin(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}\.[A-Za-z]{2,24}"),
    "credit_cards": _Builtin(
        r"\b(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6011|65\d{2})[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b"
        r"|\b3[47]\d{2}[ -]?\d{6}[ -]?\d{5}\b",
        _is_card,
    ),
    "bearer_tokens": _Builtin(
        r"(?i)\b(?:bearer|basic) +[a-z0-9._~+/=-]{16,}|\beyj[a-z0-9_-]{10,}\.eyj[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}",
        prefilter=r"(?i)(?:bearer|basic) +[a-z0-9]|eyj[a-z0-9_-]{10,}",
    ),
    "api_keys": _Builtin(
        r"\b(?:sk-[A-Za-z0-9_-]{20,}|gh[opusr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{20,}"
        r"|AKIA[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{35}|xox[abprs]-[A-Za-z0-9-]{10,}|hf_[A-Za-z0-9]{30,}"
        r"|spanloop_[0-9a-f]{8}_[A-Za-z0-9_-]{40,})"
    ),
}


def builtin(name: str) -> Rule:
    """One of the rules that are there to be switched on.

    Raises:
        KeyError: There is none of that name.
    """
    found = _BUILTIN[name]
    prefilter = found.prefilter or prefilter_pattern(found.pattern)
    return Rule(name, "", prefilter, Pattern(found.pattern), is_dropped=False, replacement=MASK, counts=found.counts)


class _RuleText(BaseModel):
    """A ``[[rule]]`` of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9_-]+$", max_length=64)
    """Counted under it, and written on the spans."""
    attribute: str = Field(default="", max_length=512)
    """A glob over attribute names; of values within values the names are joined by dots."""
    pattern: str = ""
    """RE2."""
    action: Literal["", "mask", "drop"] = ""
    """Default: mask what the pattern matches; without a pattern drop the attribute."""
    replacement: str = Field(default=MASK, min_length=1, max_length=256)


class _File(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    builtin: tuple[str, ...] = ()
    rule: tuple[_RuleText, ...] = ()


def load_rules(data_dir: DataDir, path: Path | None = None) -> Sequence[Rule]:
    """The rules of a file that was named, else of ``$SPANLOOP_REDACT``, else of the data directory; none without one.

    Raises:
        ConfigurationError: The file is not there, or something in it is wrong.
    """
    named = path or (Path(found) if (found := os.environ.get(REDACT_ENV)) else None)
    if named is None:
        own = data_dir.path / FILE_NAME
        return read_rules(own) if own.exists() else ()
    return read_rules(named)


def read_rules(path: Path) -> Sequence[Rule]:
    """The rules of a file.

    Raises:
        ConfigurationError: The file is not there, or something in it is wrong.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(path, f"it cannot be read: {error.strerror}") from error
    except ValueError as error:  # no TOML, no UTF-8
        raise _wrong(path, str(error)) from error
    try:
        found = _File.model_validate(content)
    except ValidationError as error:
        raise _wrong(path, _said(error, content)) from error
    rules = [_builtin(path, name) for name in found.builtin] + [_rule(path, text) for text in found.rule]
    names = [KNOWN_LEAKS, *(rule.name for rule in rules)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _wrong(path, f"{', '.join(twice)} is the name of two rules, expected one of its own for each")
    return rules


def _builtin(path: Path, name: str) -> Rule:
    try:
        return builtin(name)
    except KeyError:
        raise _wrong(path, f"builtin: got {name!r}, expected some of {', '.join(_BUILTIN)}") from None


def _rule(path: Path, text: _RuleText) -> Rule:
    where = f"rule {text.name!r}"
    if not text.attribute and not text.pattern:
        raise _wrong(path, f"{where} has neither attribute nor pattern, expected one of them or both")
    if text.pattern and text.action == "drop":
        raise _wrong(path, f"{where} has a pattern and action 'drop': a pattern masks what it matches")
    if not text.pattern:
        is_dropped = text.action != "mask"
        return Rule(
            text.name,
            text.attribute,
            _needle(text.attribute),
            None,
            is_dropped=is_dropped,
            replacement=text.replacement,
        )
    try:
        pattern = Pattern(text.pattern)
    except PatternError as error:
        raise _wrong(path, f"{where}, pattern {text.pattern!r}: {error} (RE2's syntax, without lookaround)") from error
    if pattern.matches(b""):
        raise _wrong(path, f"{where}, pattern {text.pattern!r} matches the empty text")
    return Rule(
        text.name,
        text.attribute,
        prefilter_pattern(text.pattern),
        pattern,
        is_dropped=False,
        replacement=text.replacement,
    )


def _needle(glob: str) -> str | None:
    """What the bytes of every attribute of such a name hold: names within names are apart there, at the dots."""
    longest = max(re.split(r"\[[^\]]*\]|[*?.]", glob), key=len)
    return f"(?i:{re.escape(longest)})" if longest.isascii() and longest else None


def _said(error: ValidationError, content: Mapping[str, object]) -> str:
    """The first fault, named as in the file."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    rules = content.get("rule")
    if len(fault["loc"]) > 1 and fault["loc"][0] == "rule" and isinstance(rules, list):
        rule: object = cast("list[object]", rules)[int(fault["loc"][1])]
        name: object = cast("dict[str, object]", rule).get("name") if isinstance(rule, dict) else None
        where = f"rule {name if isinstance(name, str) else int(fault['loc'][1]) + 1!r}, " + ".".join(
            str(part) for part in fault["loc"][2:]
        )
    return f"{where}: {fault['msg']}, got {str(fault['input'])[:80]!r}"


def _wrong(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"The redaction rules in {path} are not usable: {what}.",
        next_step="Mend the file (docs/how-to/redact.md has examples) and try it with: spanloop redact test FILE",
    )

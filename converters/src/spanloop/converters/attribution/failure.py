"""One thing that went wrong in an episode, and what makes it the same as in another episode."""

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from spanloop.messages import parse_json_or_none
from spanloop.messages.json_values import as_fields

from ..steps import Step
from .base import Finding
from .former_names import FINGERPRINT_NAMES

_PLACES: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>)]+|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+"
    r"|(?:~|\b[A-Za-z]:)?(?:[/\\][\w.@%+-]+){2,}[/\\]?"
)
_VALUES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|(?<![\w-])[\w-]*\d[\w.:+-]*|\b[0-9a-fA-F]{8,}\b")
_MANY: Final = re.compile(r"#(?:[\s,;|/:()\[\]{}*=+-]*#)+")
_FRAMES: Final = re.compile(r"Traceback \(most recent call last\):.*\n(?=\S)", re.DOTALL)
_PREFIX: Final = re.compile(
    r"^(?:(?:tool )?(?:error|exception)\b[^:\n]{0,40}:\s*|(?:\w+\.)*[A-Z]\w*(?:Error|Exception)\s*:\s*)+", re.IGNORECASE
)
_MOST_READ: Final = 20_000
_MOST_TEXT: Final = 2_000
_MOST_SHAPE: Final = 200
_LEAST_VALUE: Final = 3
"""Arguments' values of fewer characters are found in any text."""


class Failure(msgspec.Struct, frozen=True, gc=False):
    """One thing that went wrong in an episode."""

    step: Step
    trace_id: str
    span_id: str
    """The culprit: the model call when the policy is to blame, else the span that failed."""
    tool_name: str
    rule: str
    finding: Finding
    is_recovered: bool
    occurred_ns: int
    progress: int = 0
    """Steps before it at which everything worked."""
    fingerprinted: Finding | None = None
    """Decides the fingerprint where a person judged: the rule's finding, or the person's without the comment."""

    @property
    def culprit(self) -> tuple[str, str]:
        """The key of the culprit's span."""
        return self.trace_id, self.span_id

    @property
    def fingerprint(self) -> str:
        """The same for the same failure in any episode: values, places, arguments and people do not count."""
        finding = self.fingerprinted or self.finding
        evidence = finding.evidence
        raised = str(evidence.get("error_type") or evidence.get("exception.type") or "").rpartition(".")[2]
        arguments = evidence.get("arguments")
        shape = _shape(finding.message, arguments if isinstance(arguments, str) else "")
        rule = FINGERPRINT_NAMES.get(self.rule, self.rule)
        text = f"{finding.error_class}\0{finding.owner}\0{self.tool_name}\0{rule}\0{raised}\0{shape}"
        return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


@lru_cache(maxsize=1024)
def _shape(message: str, arguments: str) -> str:
    """A message without what differs from episode to episode: values, places, a traceback's frames, who wraps it."""
    text = _FRAMES.sub("", _unwrapped(message)[:_MOST_READ]).strip()[:_MOST_TEXT]
    text = _PLACES.sub("#", _PREFIX.sub("", text))
    for value in _values(arguments):
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "#", text)
    return _MANY.sub("#", " ".join(_VALUES.sub("#", text).split()))[:_MOST_SHAPE]


def _unwrapped(message: str) -> str:
    """The words of an error that comes as a JSON object."""
    fields = _fields(message)
    fields |= as_fields(fields.get("error"))
    texts = (fields.get(key) for key in ("message", "detail", "error", "exception", "reason"))
    return next((value for value in texts if isinstance(value, str) and value), message)


def _fields(text: str) -> dict[str, object]:
    """A JSON object's, else none."""
    return as_fields(parse_json_or_none(text)) if text.startswith("{") else {}


def _values(arguments: str) -> list[str]:
    """Texts among a call's arguments, the longest first."""
    fields = _fields(arguments)
    texts = {value.strip() for value in fields.values() if isinstance(value, str)}
    return sorted((value for value in texts if _LEAST_VALUE <= len(value) <= _MOST_SHAPE), key=lambda v: (-len(v), v))

"""Redact requests before they are stored: attributes that are known to carry secrets, and matches of the rules.

OpenLLMetry writes a request's extra headers, ``Authorization`` included, into ``gen_ai.headers``, with content capture
off too; other instrumentations write header by header, or a call's arguments as JSON. Invariant: no accepted request
holds a value under a name of `_LEAKING`, or a text that a rule matches; a redacted item lists its rules in
`SPANLOOP_REDACTED`. A request that no rule changes keeps its bytes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, MutableSequence, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from spanloop.foundation.surrogates import dump_json
from spanloop.semconv.attributes import SPANLOOP_REDACTED

from .re2_patterns import Pattern
from .rules import KNOWN_LEAKS, MASK, Rule

LEAKING_KEYS: Final = frozenset({"gen_ai.headers", "llm.headers"})
"""Attributes that always contain all headers."""
_LEAKING: Final = re.compile(
    r"(?:gen_ai|llm)\.headers|.*\.header\.(?:set-)?cookie|(?:.*[._-])?(?:authorization|api[-_]?key)", re.IGNORECASE
)
"""Matches the whole names of attributes whose values are secrets."""
_LEAK_PREFILTERS: Final = (r"\.header", r"(?i)authorization", r"(?i)api[-_]?key")
"""At least one matches all bytes with such a name. Each begins with literal characters, which RE2 searches fast: the
three together take 2 µs for a span of 3 KB, one joined pattern 4."""
_LEAKS_IN_TEXT: Final = ("authorization", "api_key", "api-key", "apikey")
_LEAK_IN_PROSE: Final = re.compile(
    rb"""(["'][\w.-]{0,64}(?:authorization|api[-_]?key)["']\s{0,8}:\s{0,8})(["'])(?!__REDACTED__)"""
    rb"""(?:(?!\2)[^\\]|\\.)+(?:\2|\Z)""",
    re.IGNORECASE | re.DOTALL,
)
"""Matches in a printed dict, or in JSON within a text, also truncated. Takes linear time, as a `Pattern` does."""
_JSON_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|-?\d[\d.eE+-]*', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_MAX_DEPTH: Final = 8
"""Levels of JSON within JSON strings; deeper levels are masked as plain text."""
_MAX_PLANS: Final = 10_000

RedactionCounts: TypeAlias = Counter[tuple[str, str]]
"""Number of dropped or masked values, by the names of rule and attribute."""


class _AttributePlan(NamedTuple):
    """The rules that apply to attributes of one name."""

    value_rule: Rule | None
    """Drops or masks the whole value."""
    pattern_rules: tuple[Rule, ...]
    """Mask their matches."""
    is_leak: bool
    prefilter: Pattern | None
    """Matches all texts in which ``pattern_rules`` match; None when there is no such pattern."""


class Redactor:
    """Applies redaction rules; safe to share between threads.

    Args:
        rules: Rules besides the known leaks, which are always active.
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._plans: dict[str, _AttributePlan] = {}
        prefilters = [rule.prefilter for rule in rules]
        self._always = any(prefilter is None for prefilter in prefilters)
        # With rules, one joined pattern takes as long as a single prefilter.
        joined = _join_patterns([*_LEAK_PREFILTERS, *prefilters])
        self._prefilters = [joined] if rules else [Pattern(prefilter) for prefilter in _LEAK_PREFILTERS]

    def may_match(self, body: bytes) -> bool:
        """Return False when no rule can match a request, which skips the walk through nearly all requests."""
        return self._always or any(prefilter.matches(body) for prefilter in self._prefilters)

    def may_match_escaped(self, body: bytes) -> bool:
        """Do the same for bytes that cannot be parsed, in which JSON may have escaped a match."""
        return self.may_match(body) or (b"\\" in body and self.may_match(_ESCAPE.sub(_unescape, body)))

    def redact(self, request: ExportTraceServiceRequest | ExportLogsServiceRequest) -> RedactionCounts:
        """Drop and mask values in place; return empty counts when nothing changed."""
        hits: RedactionCounts = Counter()
        if isinstance(request, ExportTraceServiceRequest):
            self._redact_traces(request, hits)
        else:
            self._redact_logs(request, hits)
        return hits

    def redact_text(self, text: str) -> tuple[str, RedactionCounts]:
        """Redact a text that belongs to no attribute."""
        hits: RedactionCounts = Counter()
        return self._mask("", text, hits), hits

    def redact_mapping(self, attributes: dict[str, str]) -> tuple[dict[str, str], RedactionCounts]:
        """Redact attributes whose values are texts."""
        pairs = [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()]
        hits: RedactionCounts = Counter()
        self._redact_attributes(pairs, hits)
        if not hits:
            return attributes, hits
        return {pair.key: pair.value.string_value for pair in pairs}, hits

    @staticmethod
    def add_rule_names(attributes: dict[str, str], hits: RedactionCounts) -> dict[str, str]:
        """Add the names of the rules that changed something to the attributes."""
        earlier = attributes.get(SPANLOOP_REDACTED, "").split(",")
        return attributes | {SPANLOOP_REDACTED: _join_names({*earlier, *(rule for rule, _ in hits)})}

    def _redact_traces(self, request: ExportTraceServiceRequest, hits: RedactionCounts) -> None:
        for resource_spans in request.resource_spans:
            self._redact_and_mark(resource_spans.resource.attributes, hits)
            for scope_spans in resource_spans.scope_spans:
                self._redact_and_mark(scope_spans.scope.attributes, hits)
                for span in scope_spans.spans:
                    item_hits: RedactionCounts = Counter()
                    self._redact_attributes(span.attributes, item_hits)
                    span.name = self._mask("", span.name, item_hits)
                    if span.status.message:
                        span.status.message = self._mask("", span.status.message, item_hits)
                    for event in span.events:
                        event.name = self._mask("", event.name, item_hits)
                        self._redact_attributes(event.attributes, item_hits)
                    for link in span.links:
                        self._redact_attributes(link.attributes, item_hits)
                    _add_rule_names(span.attributes, item_hits)
                    hits += item_hits

    def _redact_logs(self, request: ExportLogsServiceRequest, hits: RedactionCounts) -> None:
        for resource_logs in request.resource_logs:
            self._redact_and_mark(resource_logs.resource.attributes, hits)
            for scope_logs in resource_logs.scope_logs:
                self._redact_and_mark(scope_logs.scope.attributes, hits)
                for record in scope_logs.log_records:
                    item_hits: RedactionCounts = Counter()
                    self._redact_attributes(record.attributes, item_hits)
                    if record.HasField("body"):
                        self._redact_value("", record.body, item_hits)
                    _add_rule_names(record.attributes, item_hits)
                    hits += item_hits

    def _redact_and_mark(self, attributes: MutableSequence[KeyValue], hits: RedactionCounts) -> None:
        item_hits: RedactionCounts = Counter()
        self._redact_attributes(attributes, item_hits)
        _add_rule_names(attributes, item_hits)
        hits += item_hits

    def _redact_attributes(self, pairs: MutableSequence[KeyValue], hits: RedactionCounts, parent: str = "") -> None:
        dropped: list[int] = []
        for at, pair in enumerate(pairs):
            name = f"{parent}.{pair.key}" if parent else pair.key
            plan = self._plan(name)
            if plan.is_leak or (plan.value_rule is not None and plan.value_rule.is_dropped):
                hits[KNOWN_LEAKS if plan.is_leak or plan.value_rule is None else plan.value_rule.name, name] += 1
                dropped.append(at)
            elif plan.value_rule is not None:
                if pair.value.string_value != plan.value_rule.replacement:
                    hits[plan.value_rule.name, name] += 1
                    pair.value.string_value = plan.value_rule.replacement
            else:
                self._redact_value(name, pair.value, hits)
        for at in reversed(dropped):
            del pairs[at]

    def _redact_value(self, name: str, value: AnyValue, hits: RedactionCounts) -> None:
        """Mask matches within a value, at any depth."""
        kind = value.WhichOneof("value")
        if kind == "string_value":
            masked = self._mask(name, value.string_value, hits)
            if masked is not value.string_value and masked != value.string_value:
                value.string_value = masked
        elif kind == "array_value":
            for item in value.array_value.values:
                self._redact_value(name, item, hits)
        elif kind == "kvlist_value":
            self._redact_attributes(value.kvlist_value.values, hits, name)
        elif kind == "bytes_value":
            text = value.bytes_value.decode("utf-8", "replace")
            masked = self._mask(name, text, hits)
            if masked != text:
                value.string_value = masked

    def _mask(self, name: str, text: str, hits: RedactionCounts, depth: int = 0) -> str:
        """Mask the matches in a text."""
        if not text:
            return text
        plan = self._plan(name)
        has_leak = _may_name_leak(text)
        if not has_leak and not plan.pattern_rules:
            return text
        data = text.encode("utf-8", "replace")
        if not has_leak and plan.prefilter is not None and not plan.prefilter.matches(data):
            return text
        if depth < _MAX_DEPTH and text.lstrip()[:1] in {"{", "[", '"'}:
            masked = self._mask_json(name, text, hits, depth)
            if _is_json(text):
                return masked
            # The text is truncated or only begins like JSON: masking it as plain text too loses nothing.
            data = masked.encode("utf-8", "replace")
        return self._mask_plain(name, data, hits, plan.pattern_rules)

    @staticmethod
    def _mask_plain(name: str, data: bytes, hits: RedactionCounts, rules: Sequence[Rule]) -> str:
        if _may_name_leak(data.decode("utf-8", "replace")):
            data, count = _LEAK_IN_PROSE.subn(_mask_leak, data)
            if count:
                hits[KNOWN_LEAKS, name] += count
        for rule in rules:
            if rule.pattern is not None:
                data, count = rule.pattern.replace(data, rule.replacement.encode(), rule.is_match)
                if count:
                    hits[rule.name, name] += count
        return data.decode("utf-8", "replace")

    def _mask_json(self, name: str, text: str, hits: RedactionCounts, depth: int) -> str:
        """Mask JSON, also truncated, within its strings and numbers, so that it stays JSON."""
        parts: list[str] = []
        at = 0
        is_secret = False
        for token in _JSON_TOKEN.finditer(text):
            start, end = token.span()
            between, content = text[at:start], token[1]
            is_value_of_secret = is_secret and not between.strip()
            is_secret = token[2] is not None and _LEAKING.fullmatch(content) is not None
            if content is None:
                plain = self._mask(name, token[0], hits, _MAX_DEPTH)
                new = token[0] if plain == token[0] else json.dumps(plain)
            elif is_value_of_secret and token[2] is None:
                is_new = content not in {"", MASK}
                if is_new:
                    hits[KNOWN_LEAKS, name] += 1
                new = f'"{MASK}"' if is_new else token[0]
            else:
                new = self._mask_literal(name, token[0][: len(content) + 2], hits, depth) + (token[2] or "")
            parts += (between, new)
            at = end
        return "".join([*parts, text[at:]])

    def _mask_literal(self, name: str, literal: str, hits: RedactionCounts, depth: int) -> str:
        try:
            content = str(json.loads(literal, strict=False))
        except ValueError:  # an escape that JSON does not define
            content = literal[1:-1]
        masked = self._mask(name, content, hits, depth + 1)
        return literal if masked == content else dump_json(masked)

    def _plan(self, name: str) -> _AttributePlan:
        plan = self._plans.get(name)
        if plan is None:
            rules = [rule for rule in self.rules if rule.applies_to(name)]
            value_rule = next((rule for rule in rules if rule.pattern is None), None)
            pattern_rules = tuple(rule for rule in rules if rule.pattern is not None)
            prefilters = [rule.prefilter for rule in pattern_rules]
            prefilter = None if None in prefilters or not prefilters else _join_patterns(prefilters)
            plan = _AttributePlan(value_rule, pattern_rules, _LEAKING.fullmatch(name) is not None, prefilter)
            if len(self._plans) >= _MAX_PLANS:
                # Attribute names that clients generate must not fill the memory.
                self._plans.clear()
            self._plans[name] = plan
        return plan


def count_by_rule(hits: RedactionCounts) -> Counter[str]:
    """Sum the dropped or masked values by rule."""
    counts: Counter[str] = Counter()
    for (rule, _), count in hits.items():
        counts[rule] += count
    return counts


@cache
def _pattern(source: str) -> Pattern:
    return Pattern(source)


def _join_patterns(sources: Sequence[str | None]) -> Pattern:
    return _pattern("|".join(f"(?:{source})" for source in sources if source))


def _add_rule_names(attributes: MutableSequence[KeyValue], hits: RedactionCounts) -> None:
    """Add the rules' names to an item, and keep the names that it already has, as a replayed item does."""
    if not hits:
        return
    names = {rule for rule, _ in hits}
    for pair in attributes:
        if pair.key == SPANLOOP_REDACTED:
            pair.value.string_value = _join_names({*pair.value.string_value.split(","), *names})
            return
    attributes.append(KeyValue(key=SPANLOOP_REDACTED, value=AnyValue(string_value=_join_names(names))))


def _join_names(names: Iterable[str]) -> str:
    return ",".join(sorted(name for name in names if name))


def _may_name_leak(text: str) -> bool:
    # Most texts are short, and for those this is ten times faster than a pattern.
    lower = text.lower()
    return any(name in lower for name in _LEAKS_IN_TEXT)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _mask_leak(match: re.Match[bytes]) -> bytes:
    return match[1] + match[2] + MASK.encode() + match[2]


def _unescape(match: re.Match[bytes]) -> bytes:
    return chr(int(match[1], 16)).encode("utf-8", "replace") if match[1] else match[2]

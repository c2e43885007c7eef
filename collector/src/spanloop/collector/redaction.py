"""What nobody may store never gets past the door: attributes that are known to carry secrets, and what rules name.

OpenLLMetry writes a request's extra headers, ``Authorization`` included, into ``gen_ai.headers``, with content capture
off too; other instrumentations write header by header, or a call's whole arguments as JSON. Invariant: no accepted
request holds a value under a name of `_LEAKING`, or a text that a rule matches, and an item that lost something says
by which rules in `REDACTED`. A request that no rule touches keeps its bytes.
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

from spanloop.semconv.attributes import SPANLOOP_REDACTED

from .re2_patterns import Pattern
from .redaction_rules import KNOWN_LEAKS, MASK, Rule

LEAKING_KEYS: Final = frozenset({"gen_ai.headers", "llm.headers"})
"""Attributes that always hold all headers."""
_LEAKING: Final = re.compile(
    r"(?:gen_ai|llm)\.headers|.*\.header\.(?:set-)?cookie|(?:.*[._-])?(?:authorization|api[-_]?key)", re.IGNORECASE
)
"""Names, whole, whose values are secrets."""
_LEAK_NEEDLES: Final = (r"\.header", r"(?i)authorization", r"(?i)api[-_]?key")
"""One of these is in all bytes that hold such a name. Each begins with plain characters, which RE2 finds by itself: the
three together take 2 µs for a span of 3 KB, as one pattern 4."""
_LEAKS_IN_TEXT: Final = ("authorization", "api_key", "api-key", "apikey")
_LEAK_IN_PROSE: Final = re.compile(
    rb"""(["'][\w.-]{0,64}(?:authorization|api[-_]?key)["']\s{0,8}:\s{0,8})(["'])(?!__REDACTED__)"""
    rb"""(?:(?!\2)[^\\]|\\.)+(?:\2|\Z)""",
    re.IGNORECASE | re.DOTALL,
)
"""In a dict that was printed, or JSON that is part of a text, perhaps cut off. Takes linear time, as a `Pattern`."""
_JSON_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|-?\d[\d.eE+-]*', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_MAX_DEPTH: Final = 8
"""JSON within a string of JSON, so many times; deeper it is plain text."""
_MAX_PLANS: Final = 10_000

RedactionCounts: TypeAlias = Counter[tuple[str, str]]
"""How many values were dropped or masked, by the rule's name and the attribute's."""


class _Plan(NamedTuple):
    """What is to be done with attributes of one name."""

    whole: Rule | None
    """Drops or masks the attribute."""
    within: tuple[Rule, ...]
    """Mask what they match."""
    is_leak: bool
    first: Pattern | None
    """Found in all texts in which ``within`` finds something; None when there is no such pattern."""


class Redactor:
    """Applies rules; made once, safe to share between threads.

    Args:
        rules: Besides the known leaks, which always count.
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._plans: dict[str, _Plan] = {}
        prefilters = [rule.prefilter for rule in rules]
        self._always = any(prefilter is None for prefilter in prefilters)
        # With rules one pattern of all prefilters takes as long as one of one.
        joined = _joined_pattern([*_LEAK_NEEDLES, *prefilters])
        self._needles = [joined] if rules else [Pattern(prefilter) for prefilter in _LEAK_NEEDLES]

    def may_match(self, body: bytes) -> bool:
        """False when nothing is to be done with a request, which saves the walk through nearly all of them."""
        return self._always or any(prefilter.matches(body) for prefilter in self._needles)

    def may_match_escaped(self, body: bytes) -> bool:
        """The same for bytes that nobody can read: JSON may have escaped what would be found."""
        return self.may_match(body) or (b"\\" in body and self.may_match(_ESCAPE.sub(_unescaped, body)))

    def redact(self, request: ExportTraceServiceRequest | ExportLogsServiceRequest) -> RedactionCounts:
        """Drop and mask in place; empty when nothing was to be done."""
        hits: RedactionCounts = Counter()
        if isinstance(request, ExportTraceServiceRequest):
            self._traces(request, hits)
        else:
            self._logs(request, hits)
        return hits

    def redact_text(self, text: str) -> tuple[str, RedactionCounts]:
        """A text that belongs to no attribute."""
        hits: RedactionCounts = Counter()
        return self._masked("", text, hits), hits

    def redact_mapping(self, attributes: dict[str, str]) -> tuple[dict[str, str], RedactionCounts]:
        """Attributes whose values are texts already."""
        pairs = [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()]
        hits: RedactionCounts = Counter()
        self._attributes(pairs, hits)
        if not hits:
            return attributes, hits
        return {pair.key: pair.value.string_value for pair in pairs}, hits

    @staticmethod
    def add_rule_names(attributes: dict[str, str], hits: RedactionCounts) -> dict[str, str]:
        """Attributes that say which rules took something."""
        before = attributes.get(SPANLOOP_REDACTED, "").split(",")
        return attributes | {SPANLOOP_REDACTED: _joined({*before, *(rule for rule, _ in hits)})}

    def _traces(self, request: ExportTraceServiceRequest, hits: RedactionCounts) -> None:
        for resource_spans in request.resource_spans:
            self._marked(resource_spans.resource.attributes, hits)
            for scope_spans in resource_spans.scope_spans:
                self._marked(scope_spans.scope.attributes, hits)
                for span in scope_spans.spans:
                    own: RedactionCounts = Counter()
                    self._attributes(span.attributes, own)
                    span.name = self._masked("", span.name, own)
                    if span.status.message:
                        span.status.message = self._masked("", span.status.message, own)
                    for event in span.events:
                        event.name = self._masked("", event.name, own)
                        self._attributes(event.attributes, own)
                    for link in span.links:
                        self._attributes(link.attributes, own)
                    _mark(span.attributes, own)
                    hits += own

    def _logs(self, request: ExportLogsServiceRequest, hits: RedactionCounts) -> None:
        for resource_logs in request.resource_logs:
            self._marked(resource_logs.resource.attributes, hits)
            for scope_logs in resource_logs.scope_logs:
                self._marked(scope_logs.scope.attributes, hits)
                for record in scope_logs.log_records:
                    own: RedactionCounts = Counter()
                    self._attributes(record.attributes, own)
                    if record.HasField("body"):
                        self._value("", record.body, own)
                    _mark(record.attributes, own)
                    hits += own

    def _marked(self, attributes: MutableSequence[KeyValue], hits: RedactionCounts) -> None:
        own: RedactionCounts = Counter()
        self._attributes(attributes, own)
        _mark(attributes, own)
        hits += own

    def _attributes(self, pairs: MutableSequence[KeyValue], hits: RedactionCounts, above: str = "") -> None:
        dropped: list[int] = []
        for at, pair in enumerate(pairs):
            name = f"{above}.{pair.key}" if above else pair.key
            plan = self._plan(name)
            if plan.is_leak or (plan.whole is not None and plan.whole.is_dropped):
                hits[KNOWN_LEAKS if plan.is_leak or plan.whole is None else plan.whole.name, name] += 1
                dropped.append(at)
            elif plan.whole is not None:
                if pair.value.string_value != plan.whole.replacement:
                    hits[plan.whole.name, name] += 1
                    pair.value.string_value = plan.whole.replacement
            else:
                self._value(name, pair.value, hits)
        for at in reversed(dropped):
            del pairs[at]

    def _value(self, name: str, value: AnyValue, hits: RedactionCounts) -> None:
        """Mask within a value, however deep."""
        kind = value.WhichOneof("value")
        if kind == "string_value":
            masked = self._masked(name, value.string_value, hits)
            if masked is not value.string_value and masked != value.string_value:
                value.string_value = masked
        elif kind == "array_value":
            for each in value.array_value.values:
                self._value(name, each, hits)
        elif kind == "kvlist_value":
            self._attributes(value.kvlist_value.values, hits, name)
        elif kind == "bytes_value":
            text = value.bytes_value.decode("utf-8", "replace")
            masked = self._masked(name, text, hits)
            if masked != text:
                value.string_value = masked

    def _masked(self, name: str, text: str, hits: RedactionCounts, depth: int = 0) -> str:
        """A text with its matches masked."""
        if not text:
            return text
        plan = self._plan(name)
        has_leak = _may_name_leak(text)
        if not has_leak and not plan.within:
            return text
        data = text.encode("utf-8", "replace")
        if not has_leak and plan.first is not None and not plan.first.matches(data):
            return text
        if depth < _MAX_DEPTH and text.lstrip()[:1] in {"{", "[", '"'}:
            masked = self._masked_json(name, text, hits, depth)
            if _is_json(text):
                return masked
            # It was cut off, or only begins like JSON: then nothing is lost when it is read as plain text too.
            data = masked.encode("utf-8", "replace")
        return self._masked_plain(name, data, hits, plan.within)

    @staticmethod
    def _masked_plain(name: str, data: bytes, hits: RedactionCounts, rules: Sequence[Rule]) -> str:
        if _may_name_leak(data.decode("utf-8", "replace")):
            data, count = _LEAK_IN_PROSE.subn(_leak_masked, data)
            if count:
                hits[KNOWN_LEAKS, name] += count
        for rule in rules:
            if rule.pattern is not None:
                data, count = rule.pattern.replace(data, rule.replacement.encode(), rule.counts)
                if count:
                    hits[rule.name, name] += count
        return data.decode("utf-8", "replace")

    def _masked_json(self, name: str, text: str, hits: RedactionCounts, depth: int) -> str:
        """The same for JSON, whole or cut off: within its strings and numbers, so that it stays JSON."""
        pieces: list[str] = []
        at = 0
        is_secret = False
        for token in _JSON_TOKEN.finditer(text):
            start, end = token.span()
            between, said = text[at:start], token[1]
            is_value_of_secret = is_secret and not between.strip()
            is_secret = token[2] is not None and _LEAKING.fullmatch(said) is not None
            if said is None:
                plain = self._masked(name, token[0], hits, _MAX_DEPTH)
                new = token[0] if plain == token[0] else json.dumps(plain)
            elif is_value_of_secret and token[2] is None:
                is_new = said not in {"", MASK}
                if is_new:
                    hits[KNOWN_LEAKS, name] += 1
                new = f'"{MASK}"' if is_new else token[0]
            else:
                new = self._masked_literal(name, token[0][: len(said) + 2], hits, depth) + (token[2] or "")
            pieces += (between, new)
            at = end
        return "".join([*pieces, text[at:]])

    def _masked_literal(self, name: str, literal: str, hits: RedactionCounts, depth: int) -> str:
        try:
            said = str(json.loads(literal, strict=False))
        except ValueError:  # an escape that JSON does not know
            said = literal[1:-1]
        masked = self._masked(name, said, hits, depth + 1)
        return literal if masked == said else json.dumps(masked, ensure_ascii=False)

    def _plan(self, name: str) -> _Plan:
        plan = self._plans.get(name)
        if plan is None:
            mine = [rule for rule in self.rules if rule.applies_to(name)]
            whole = next((rule for rule in mine if rule.pattern is None), None)
            within = tuple(rule for rule in mine if rule.pattern is not None)
            prefilters = [rule.prefilter for rule in within]
            first = None if None in prefilters or not prefilters else _joined_pattern(prefilters)
            plan = _Plan(whole, within, _LEAKING.fullmatch(name) is not None, first)
            if len(self._plans) >= _MAX_PLANS:
                # Names that senders make up must not fill the memory.
                self._plans.clear()
            self._plans[name] = plan
        return plan


def count_by_rule(hits: RedactionCounts) -> Counter[str]:
    """How many values each rule dropped or masked."""
    counts: Counter[str] = Counter()
    for (rule, _), count in hits.items():
        counts[rule] += count
    return counts


@cache
def _pattern(source: str) -> Pattern:
    return Pattern(source)


def _joined_pattern(sources: Sequence[str | None]) -> Pattern:
    return _pattern("|".join(f"(?:{source})" for source in sources if source))


def _mark(attributes: MutableSequence[KeyValue], hits: RedactionCounts) -> None:
    """Say which rules took something; what was said before, of an item that comes again, still holds."""
    if not hits:
        return
    names = {rule for rule, _ in hits}
    for pair in attributes:
        if pair.key == SPANLOOP_REDACTED:
            pair.value.string_value = _joined({*pair.value.string_value.split(","), *names})
            return
    attributes.append(KeyValue(key=SPANLOOP_REDACTED, value=AnyValue(string_value=_joined(names))))


def _joined(names: Iterable[str]) -> str:
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


def _leak_masked(match: re.Match[bytes]) -> bytes:
    return match[1] + match[2] + MASK.encode() + match[2]


def _unescaped(match: re.Match[bytes]) -> bytes:
    return chr(int(match[1], 16)).encode("utf-8", "replace") if match[1] else match[2]

"""Turn filters into conditions of a query.

Invariant: only text of this module becomes SQL; every value is a bound parameter.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from spanloop.dashboard.view_models.filters import Filters, TimeRange, parse_bounds

AGENT: Final = "if(agent_name = '', service_name, agent_name)"
"""The name of the agent; its service where it has none."""
_WORD: Final = re.compile(r"[0-9A-Za-z\u0080-\U0010ffff]+")
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)
"""Scripts that put no space between words: there a word of the index is a whole run of letters."""
_USER_KEYS: Final = ("user.id", "enduser.id", "langfuse.user.id", "langsmith.metadata.user_id", "user_id")
REVISION: Final = "revision_hash"
"""An episode's revision in the summaries. A set of numbers is built and probed in a third of the time of a set of
pairs; two of ten million revisions have the same number with a probability of 3e-6."""
_COMPUTED_REVISION: Final = "cityHash64(episode_id, revision)"
"""The same in other tables."""
MARGIN_S: Final = 86_400
"""Longest distance of a span from the time of its episode."""
COMMON_HITS: Final = 200_000
"""Words with more hits are looked for in the newest episodes only."""
ATTRIBUTE_TRACES: Final = 5_000
"""Attributes have no index: the spans of so many traces are read, the newest of the range of time."""
NEWEST_EPISODES: Final = 20_000
_JUDGED: Final = (
    "SELECT episode_id FROM (SELECT episode_id, is_withdrawn FROM judgements FINAL ORDER BY judged_at DESC, "
    "judgement_id DESC LIMIT 1 BY scope, trace_id, span_id, fingerprint, judged_by) WHERE is_withdrawn = 0"
)
_EPISODE_COLUMNS: Final = {
    "outcome": "outcome",
    "service": "service_name",
    "agent": AGENT,
    "model": "model",
    "policy": "policy_version",
    "task": "task_id",
    "owner": "fault_owner",
    "class": "error_class",
    "session": "session_id",
}
_EPISODE_RANGES: Final = {
    "reward": "ifNull(reward, nan)",
    "duration": "duration_ns / 1e9",
    "tokens": "input_tokens + output_tokens",
    "steps": "step_count",
    "errors": "tool_error_count",
}
_MEMBERS: Final = {
    "called": ("step_summaries", "model", "started_at", ""),
    "fingerprint": ("failure_summaries", "fingerprint", "occurred_at", "is_recovered = 0"),
}
"""Field of an episode that its steps or failures have → their table, its column and time, and a further condition."""
_TRACE_COLUMNS: Final = {
    "service": "service_name",
    "agent": AGENT,
    "model": "model",
    "task": "task_id",
    "session": "session_id",
}
_FAILURE_COLUMNS: Final = {
    "owner": "fault_owner",
    "class": "error_class",
    "tool": "tool_name",
    "task": "task_id",
    "policy": "policy_version",
    "fingerprint": "fingerprint",
}
_OF_FAILURES: Final = (*_FAILURE_COLUMNS, "error", "q", "time")
_WEEK_S: Final = 7 * 86_400
_STEP_COLUMNS: Final = {
    "owner": "fault_owner",
    "class": "error_class",
    "policy": "policy_version",
    "model": "model",
    "called": "model",
    "task": "task_id",
}
_STEP_RANGES: Final = {
    "reward": "ifNull(reward, nan)",
    "duration": "duration_ns / 1e9",
    "tokens": "input_tokens + output_tokens",
    "errors": "tool_error_count",
}
_OF_STEPS: Final = (*_STEP_COLUMNS, *_STEP_RANGES, "tool", "q", "time")


class Words(NamedTuple):
    """A search of a filter bar, taken apart."""

    text: str
    words: tuple[str, ...]
    """In lower case, as the index has them."""
    is_partial: bool
    """Whether parts of words match, which reads messages instead of the index."""
    is_common: bool = False
    """Whether the words occur so often that only the newest episodes are searched."""


@dataclass
class Conditions:
    """Conditions that must all hold, with the values of their parameters."""

    texts: list[str] = field(default_factory=list[str])
    parameters: dict[str, object] = field(default_factory=dict[str, object])

    @property
    def is_costly(self) -> bool:
        """Whether a condition reads another table."""
        return any("(SELECT" in text for text in self.texts)

    @property
    def sql(self) -> str:
        """The conditions as one."""
        return " AND ".join(f"({text})" for text in self.texts) or "1"

    def bind(self, value: object, sql_type: str) -> str:
        """Return the placeholder of a new parameter."""
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"{{{name}:{sql_type}}}"

    def add(self, text: str) -> None:
        """Add a condition."""
        self.texts.append(text)

    def add_equal(self, column: str, values: Sequence[str]) -> None:
        """Add that a column has one of the values, or begins like one with a final ``*``; no value is no condition."""
        prefixes = [value.removesuffix("*") for value in values if value.endswith("*")]
        exact = [value for value in values if not value.endswith("*")]
        texts = [f"startsWith({column}, {self.bind(prefix, 'String')})" for prefix in prefixes]
        if exact:
            texts.append(f"{column} IN {self.bind(exact, 'Array(String)')}")
        if texts:
            self.add(" OR ".join(texts))

    def add_time(self, column: str, filters: Filters, *, margin_s: int = 0) -> None:
        """Add that a DateTime64(9) column lies in the range of time."""
        start, end = filters.time
        if start:
            self.add(f"{column} >= toDateTime64({self.bind(start - margin_s, 'Int64')}, 9, 'UTC')")
        if end < 4_000_000_000:
            self.add(f"{column} < toDateTime64({self.bind(end + margin_s, 'Int64')}, 9, 'UTC')")

    def add_minutes(self, time: TimeRange) -> None:
        """Add that the column ``ten_minutes`` lies in a range of time."""
        start, end = time
        if start:
            self.add(f"ten_minutes >= toDateTime({self.bind(start, 'Int64')}, 'UTC')")
        if end < 4_000_000_000:
            self.add(f"ten_minutes < toDateTime({self.bind(end, 'Int64')}, 'UTC')")

    def add_ranges(self, filters: Filters, columns: dict[str, str], names: Sequence[str] | None = None) -> None:
        """Add the bounds of numbers."""
        for name, column in columns.items():
            for value in filters.values.get(name, ()) if names is None or name in names else ():
                bounds = parse_bounds(value)
                if bounds is None:
                    continue
                for bound, sign in ((bounds.low, ">="), (bounds.high, "<=")):
                    if bound is not None:
                        self.add(f"{column} {sign} {self.bind(bound, 'Float64')}")


def parse_words(filters: Filters) -> Words | None:
    """Return the words of the search box, None when it is empty."""
    words = tuple(dict.fromkeys(word.lower() for word in _WORD.findall(filters.text)))
    if not filters.text:
        return None
    return Words(filters.text, words, filters.is_partial or not words or bool(_UNSPACED.search(filters.text)))


def episode_conditions(filters: Filters, words: Words | None, onto: Conditions | None = None) -> Conditions:
    """Return conditions on the rows of ``episode_summaries``, added to those of ``onto``."""
    conditions = Conditions(["is_deleted = 0"]) if onto is None else onto
    _add_episodes(conditions, filters, words)
    return conditions


def _add_episodes(conditions: Conditions, filters: Filters, words: Words | None, *, but: Sequence[str] = ()) -> None:
    """Add conditions on an episode, without the fields of ``but``."""
    conditions.add_time("started_at", filters, margin_s=MARGIN_S if "time" in but else 0)
    values = {name: each for name, each in filters.values.items() if name not in but}
    for name, column in _EPISODE_COLUMNS.items():
        conditions.add_equal(column, values.get(name, ()))
    conditions.add_ranges(filters, {name: column for name, column in _EPISODE_RANGES.items() if name not in but})
    if marks := values.get("mark"):
        conditions.add(f"hasAny(marks, {conditions.bind(list(marks), 'Array(String)')})")
    if len(judged := set(values.get("judged", ()))) == 1:
        conditions.add(f"episode_id {'IN' if judged == {'yes'} else 'NOT IN'} ({_JUDGED})")
    if tools := values.get("tool"):
        conditions.add(f"hasAny(tool_names, {conditions.bind(list(tools), 'Array(String)')})")
    for name in values.keys() & _MEMBERS.keys():
        conditions.add(_has_member(conditions, filters, name))
    for text in values.get("error", ()):
        conditions.add(_members("failures", conditions, filters, _holds_words(conditions, "words", _error_words(text))))
    for keys, value in _attributes(replace(filters, values=values)):
        traces = _traces_with_attribute(conditions, filters, keys, value)
        bound = Conditions([f"trace IN ({traces})"], conditions.parameters)
        bound.add_time("started_at", filters, margin_s=MARGIN_S if "time" in but else 0)
        conditions.add(
            f"episode_id IN (SELECT episode_id FROM episode_summaries ARRAY JOIN trace_ids AS trace WHERE {bound.sql})"
        )
    if words is not None and "q" not in but:
        conditions.add(_with_words(conditions, filters, words))


def _has_member(conditions: Conditions, filters: Filters, name: str) -> str:
    """Return that a step or failure of the episode has a value of a field of `_MEMBERS`."""
    table, column, time, condition = _MEMBERS[name]
    rows = Conditions([condition] if condition else [], conditions.parameters)
    rows.add_equal(column, filters.values[name])
    rows.add_time(time, filters, margin_s=MARGIN_S)
    return f"{REVISION} IN (SELECT {REVISION} FROM {table} WHERE {rows.sql})"


def _members(
    table: str,
    conditions: Conditions,
    filters: Filters,
    inner: str,
    *,
    key: str = REVISION,
    of: str = _COMPUTED_REVISION,
) -> str:
    """Return that the key is that ``of`` a row in another table; a range of time reads only its episodes."""
    bound = Conditions(["is_deleted = 0"], conditions.parameters)
    bound.add_time("started_at", filters)
    within = (
        f" AND episode_id IN (SELECT episode_id FROM episode_summaries WHERE {bound.sql})"
        if filters.time.is_bounded
        else ""
    )
    return f"{key} IN (SELECT {of} FROM {table} WHERE {inner}{within})"


def _traces_with_attribute(conditions: Conditions, filters: Filters, keys: Sequence[str], value: str) -> str:
    """Return a query of the traces with a span, or its resource, that has the value, or any for none, under a key."""
    newest = Conditions(parameters=conditions.parameters)
    newest.add_minutes(TimeRange(max(0, filters.time.start_s - MARGIN_S), filters.time.end_s))
    spans = Conditions(parameters=conditions.parameters)
    spans.add(
        "Timestamp >= (SELECT toDateTime64(min(ten_minutes), 9, 'UTC') FROM (SELECT ten_minutes FROM trace_summaries "
        f"WHERE {newest.sql} ORDER BY ten_minutes DESC LIMIT {ATTRIBUTE_TRACES}))"
    )
    spans.add_time("Timestamp", filters, margin_s=MARGIN_S)
    bound = [conditions.bind(key, "String") for key in keys]
    # The keys lie apart from the values, which include whole messages.
    names = f"[{', '.join(bound)}]"
    spans.add(f"hasAny(SpanAttributes.keys, {names}) OR hasAny(ResourceAttributes.keys, {names})")
    value_sql = conditions.bind(value, "String") if value else ""
    maps = ("SpanAttributes", "ResourceAttributes") if value else ()
    values = " OR ".join(f"{attributes}[{key}] = {value_sql}" for key in bound for attributes in maps) or "1"
    return f"SELECT TraceId FROM otel_traces PREWHERE {spans.sql} WHERE {values}"


def _attributes(filters: Filters) -> list[tuple[Sequence[str], str]]:
    """Return the keys, of which one has the value, and the value of each filter on attributes."""
    pairs = [text.partition("=") for text in filters.values.get("attr", ())]
    users = filters.values.get("user", ())
    return [*(((key,), value) for key, _, value in pairs), *((_USER_KEYS, user) for user in users)]


def _holds_words(conditions: Conditions, column: str, words: Words) -> str:
    if words.is_partial:
        text = conditions.bind(words.text.lower(), "String")
        return f"positionCaseInsensitiveUTF8({column}, {text}) > 0"
    return f"hasAllTokens({column}, {conditions.bind(list(words.words), 'Array(String)')})"


def _error_words(text: str) -> Words:
    words = parse_words(Filters(text=text))
    assert words is not None  # noqa: S101 - a value of the address is never empty
    return words


def _with_words(conditions: Conditions, filters: Filters, words: Words) -> str:
    """Return that a message, an action or a failure of the episode has the words, or that an id has the text."""
    bound = Conditions(["is_deleted = 0"], conditions.parameters)
    bound.add_time("started_at", filters)
    inner = _holds_words(conditions, "words", words)
    newest = (
        f"SELECT episode_id FROM episode_summaries WHERE {bound.sql} ORDER BY started_at DESC LIMIT {NEWEST_EPISODES}"
    )
    if words.is_common or words.is_partial:
        inner += f" AND episode_id IN ({newest})"
    elif filters.time.is_bounded:
        inner += f" AND episode_id IN (SELECT episode_id FROM episode_summaries WHERE {bound.sql})"
    hits = " UNION DISTINCT ".join(
        f"SELECT {_COMPUTED_REVISION} FROM {table} WHERE {inner}"
        for table in ("episode_messages", "transition_rows", "failures")
    )
    text = conditions.bind(words.text, "String")
    ids = f"positionCaseInsensitive(concat(episode_id, ' ', task_id, ' ', session_id, ' ', episode_key), {text}) > 0"
    return f"{REVISION} IN ({hits}) OR {ids}"


def matching_episodes(
    column: str, conditions: Conditions, filters: Filters, words: Words | None, but: Sequence[str] = ()
) -> str:
    """Return a query of columns of the matching episodes, without the fields of ``but``; it binds to the conditions."""
    episodes = Conditions(["is_deleted = 0"], conditions.parameters)
    _add_episodes(episodes, filters, words, but=but)
    return f"SELECT {column} FROM episode_summaries FINAL WHERE {episodes.sql}"


def trace_conditions(filters: Filters, words: Words | None) -> Conditions:
    """Return conditions on rows of traces, one for each trace, with the columns of the list."""
    conditions = Conditions()
    conditions.add_time("started_at", filters)
    for name, column in _TRACE_COLUMNS.items():
        conditions.add_equal(column, filters.values.get(name, ()))
    ranges = {"duration": "duration_ns / 1e9", "tokens": "input_tokens + output_tokens"}
    conditions.add_ranges(filters, ranges)
    known = {*_TRACE_COLUMNS, *ranges, "attr", "user"}
    for keys, value in _attributes(filters):
        conditions.add(f"trace_id IN ({_traces_with_attribute(conditions, filters, keys, value)})")
    if words is not None or set(filters.values) - known:
        traces = matching_episodes("arrayJoin(trace_ids)", conditions, filters, words, (*known, "time"))
        matching = f"trace_id IN ({traces})"
        if words is not None and not set(filters.values) - known:
            text = conditions.bind(words.text, "String")
            ids = "concat(trace_id, ' ', root_name, ' ', service_name, ' ', agent_name, ' ', task_id, ' ', session_id)"
            matching += f" OR positionCaseInsensitive({ids}, {text}) > 0"
        conditions.add(matching)
    return conditions


def failure_conditions(filters: Filters, words: Words | None, *, since_s: int = 0) -> Conditions:
    """Return conditions on rows of ``failure_summaries``; only current revisions match.

    Args:
        filters: The filters.
        words: Words in the message.
        since_s: Failures before this moment, in seconds since the epoch, do not match; an episode is assumed to have
            started at most a week before its failure.
    """
    conditions = _own_failures(filters, words)
    _add_current(conditions, filters, since_s, "occurred_at", _OF_FAILURES)
    return conditions


def own_failure_conditions(filters: Filters, words: Words | None) -> Conditions | None:
    """Return the conditions without those on the episode; None where a filter is one on the episode."""
    return None if set(filters.values) - set(_OF_FAILURES) else _own_failures(filters, words)


def _own_failures(filters: Filters, words: Words | None) -> Conditions:
    conditions = Conditions()
    conditions.add_time("occurred_at", filters)
    for name, column in _FAILURE_COLUMNS.items():
        conditions.add_equal(column, filters.values.get(name, ()))
    texts = [_error_words(text) for text in filters.values.get("error", ())]
    for each in [*texts, *([words] if words else [])]:
        inner = _holds_words(conditions, "words", each)
        conditions.add(f"failure_id IN (SELECT failure_id FROM failures WHERE {inner})")
    return conditions


def step_conditions(filters: Filters, words: Words | None, *, since_s: int = 0) -> Conditions:
    """Return conditions on rows of ``step_summaries``; only current revisions match. See `failure_conditions`."""
    conditions = _own_steps(filters, words)
    _add_current(conditions, filters, since_s, "started_at", _OF_STEPS)
    return conditions


def own_step_conditions(filters: Filters, words: Words | None) -> Conditions | None:
    """Return the conditions without those on the episode; None where a filter is one on the episode."""
    return None if set(filters.values) - set(_OF_STEPS) else _own_steps(filters, words)


def _own_steps(filters: Filters, words: Words | None) -> Conditions:
    conditions = Conditions()
    conditions.add_time("started_at", filters)
    for name, column in _STEP_COLUMNS.items():
        conditions.add_equal(column, filters.values.get(name, ()))
    if tools := filters.values.get("tool"):
        conditions.add(f"hasAny(called_tools, {conditions.bind(list(tools), 'Array(String)')})")
    conditions.add_ranges(filters, _STEP_RANGES)
    if words is not None:
        inner = _holds_words(conditions, "words", words)
        key = "cityHash64(episode_id, revision, step)"
        conditions.add(_members("transition_rows", conditions, filters, inner, key=key, of=key))
    return conditions


def _add_current(conditions: Conditions, filters: Filters, since_s: int, column: str, known: Sequence[str]) -> None:
    """Add that a row, whose time is a column, is at or behind a moment, and of a current revision that matches."""
    episodes = filters
    if since_s:
        conditions.add(f"{column} >= toDateTime64({conditions.bind(since_s, 'Int64')}, 9, 'UTC')")
        episodes = replace(filters, time=TimeRange(max(1, since_s - _WEEK_S), filters.time.end_s))
    conditions.add(f"{REVISION} IN ({matching_episodes(REVISION, conditions, episodes, None, known)})")

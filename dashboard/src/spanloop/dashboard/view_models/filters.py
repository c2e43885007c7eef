"""Filters of a list, as the address of a page states them.

Invariant: the address alone decides what a list shows; the same address shows the same filters to everybody. What an
address says wrongly becomes a problem that the page shows, and filters nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode
from zoneinfo import ZoneInfo

from spanloop.foundation.tables.judged_values import FaultOwner

FieldKind = Literal["choice", "text", "range", "attribute"]


class Field(NamedTuple):
    """A field that lists are filtered by."""

    name: str
    """Parameter of the address; it may stand several times, then one of the values must match."""
    label: str
    kind: FieldKind = "choice"
    options: tuple[str, ...] = ()
    """All values there are; empty where the store knows them."""
    help: str = ""


FIELDS: Final = (
    Field("outcome", "outcome", options=("success", "failure", "unknown")),
    Field("agent", "agent", help="an agent; its service where it has no name"),
    Field("service", "service"),
    Field("policy", "version"),
    Field("model", "model"),
    Field("called", "called model", help="a model that answered a call of the episode"),
    Field("task", "task", help="test-* finds all that begin so"),
    Field("tool", "tool"),
    Field("owner", "fault owner", options=tuple(owner.value for owner in FaultOwner)),
    Field("class", "failure class"),
    Field("fingerprint", "failure group", help="a failure of the group that the episode did not recover from"),
    Field("error", "error text", "text", help="Whole words of a failure's message, in any order."),
    Field("mark", "mark or tag"),
    Field("judged", "judged by people", options=("yes", "no")),
    Field("session", "session"),
    Field("user", "user"),
    Field("reward", "reward", "range", help="For example at least 0.5."),
    Field("duration", "duration (s)", "range", help="In seconds."),
    Field("tokens", "tokens", "range", help="Input and output together."),
    Field("steps", "steps", "range", help="Number of the policy's actions."),
    Field("errors", "tool errors", "range", help="Number of failed tool calls."),
    Field("attr", "attribute", "attribute", help="Without a value: every span that has the attribute."),
)
"""In the order of the menu."""
BY_NAME: Final[Mapping[str, Field]] = {each.name: each for each in FIELDS}
LIST_PARAMETERS: Final = ("time", "q", "match", "sort", "after", "before")
LIST_NAMES: Final = (*BY_NAME, *LIST_PARAMETERS)
"""Parameters of a list's address."""

TIME_LABELS: Final[Mapping[str, str]] = {
    "": "All time",
    "1h": "Last hour",
    "24h": "Last 24 hours",
    "today": "Today",
    "yesterday": "Yesterday",
    "7d": "Last 7 days",
    "30d": "Last 30 days",
}
_SECONDS: Final = {"1h": 3_600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400}
_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_RANGE: Final = re.compile(rf"(?P<low>{_NUMBER})?\.\.(?P<high>{_NUMBER})?", re.IGNORECASE)
_NO_END_S: Final = 4_102_444_800
"""2100-01-01."""


class TimeRange(NamedTuple):
    """A range of time: from ``start_s`` on, and before ``end_s``, in seconds since the epoch."""

    start_s: int = 0
    end_s: int = _NO_END_S

    @property
    def is_bounded(self) -> bool:
        """Whether the range has a start."""
        return self.start_s > 0


ALL_TIME: Final = TimeRange()


class Bounds(NamedTuple):
    """Bounds of a number, both included; None is no bound."""

    low: float | None
    high: float | None


@dataclass(frozen=True)
class Filters:
    """The filters of one address."""

    time: TimeRange = ALL_TIME
    time_value: str = ""
    """As in the address."""
    text: str = ""
    """Words to find in messages and errors."""
    is_partial: bool = False
    """Whether parts of words are found too, which reads every message."""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    problems: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether everything matches."""
        return not (self.values or self.text or self.time_value)

    def bounds(self, name: str) -> Bounds | None:
        """Return the bounds of a field of numbers, None without."""
        for value in self.values.get(name, ()):
            return parse_bounds(value)
        return None

    def with_value(self, name: str, value: str) -> "Filters":
        """Return the filters with one more."""
        return replace(self, values={**self.values, name: tuple(dict.fromkeys((*self.values.get(name, ()), value)))})

    def only(self, name: str, value: str) -> "Filters":
        """Return the filters with this value of a field in place of all others of the field."""
        return replace(self, values={**self.values, name: (value,)})

    def query(self, **changes: str) -> str:
        """Return the address's parameters with some replaced; an empty value leaves a parameter out."""
        pairs = [(name, value) for name, values in self.values.items() for value in values]
        others = {"time": self.time_value, "q": self.text, "match": "part" if self.is_partial else ""} | changes
        return urlencode([*pairs, *((name, value) for name, value in others.items() if value)])


def parse_filters(parameters: Mapping[str, Sequence[str]], *, now: datetime, zone: str) -> Filters:
    """Read the parameters of an address.

    Args:
        parameters: Name to values.
        now: The current time.
        zone: Name of the reader's time zone, which says when yesterday was.
    """
    problems: list[str] = []
    values: dict[str, tuple[str, ...]] = {}
    for name, given in parameters.items():
        if name not in BY_NAME:
            continue
        valid = tuple(value for value in given if value and not _problem(BY_NAME[name], value, problems))
        if valid:
            values[name] = valid
    time_value = _first(parameters, "time")
    time = parse_time(time_value, now=now, zone=zone)
    if time is None:
        expected = ", ".join(each for each in TIME_LABELS if each)
        problems.append(f"time is {time_value!r}; expected one of {expected}, or 2026-01-31T08:00Z..2026-02-01T08:00Z")
    return Filters(
        time or ALL_TIME,
        time_value if time else "",
        _first(parameters, "q"),
        _first(parameters, "match") == "part",
        values,
        tuple(problems),
    )


def parse_time(value: str, *, now: datetime, zone: str) -> TimeRange | None:
    """Return the range that the address names; None for a text that names none."""
    if not value:
        return ALL_TIME
    now_s = int(now.timestamp())
    if value in _SECONDS:
        return TimeRange(now_s - _SECONDS[value])
    midnight = now.astimezone(ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0)
    if value == "today":
        return TimeRange(int(midnight.timestamp()))
    if value == "yesterday":
        # noon of the day before is on that day also where a clock was changed
        before = (midnight - timedelta(hours=12)).astimezone(ZoneInfo(zone)).replace(hour=0)
        return TimeRange(int(before.timestamp()), int(midnight.timestamp()))
    return _between(value)


def _between(value: str) -> TimeRange | None:
    start, separator, end = value.partition("..")
    try:
        moments = [int(_moment(part).timestamp()) if part else None for part in (start, end)]
    except ValueError:
        return None
    if not separator or moments == [None, None]:
        return None
    return TimeRange(moments[0] or 0, moments[1] or _NO_END_S)


def parse_bounds(text: str) -> Bounds | None:
    """Return the bounds that ``0.5..``, ``..3`` or ``1..2`` states; a single number is both bounds."""
    match = _RANGE.fullmatch(text) or _RANGE.fullmatch(f"{text}..{text}")
    if match is None or (match["low"] is None and match["high"] is None):
        return None
    return Bounds(*(None if match[name] is None else float(match[name]) for name in ("low", "high")))


def bounds_text(value: str) -> str:
    """Return bounds in words."""
    bounds = parse_bounds(value)
    if bounds is None:
        return value
    low, high = (None if bound is None else f"{bound:g}" for bound in bounds)
    if low is None:
        return f"≤ {high}"
    return f"≥ {low}" if high is None else low if low == high else f"{low} to {high}"


def value_text(name: str, value: str) -> str:
    """Return a value of a field in words."""
    kind = BY_NAME[name].kind
    if kind == "range":
        return bounds_text(value)
    return f"{value[:-1]} with any value" if kind == "attribute" and value.endswith("=") else value


def source_text(source: str, zone: str) -> str:
    """Return an address with its filters in words: ``episodes with outcome failure and reward ≥ 0.5``."""
    before, separator, query = source.partition("?")
    pairs = parse_qsl(query)
    parts = [f"{BY_NAME[name].label} {value_text(name, value)}" for name, value in pairs if name in BY_NAME]
    others = dict(pairs)
    parts += [f"the words “{others['q']}”"] if others.get("q") else []
    time = f", {time_text(others['time'], zone).lower()}" if others.get("time") else ""
    return (
        f"{before.replace('_', ' ')} with {' and '.join(parts)}{time}"
        if parts
        else f"{before}{time}"
        if separator
        else source
    )


def time_text(value: str, zone: str) -> str:
    """Return the label of a range of time in the reader's zone."""
    if value in TIME_LABELS:
        return TIME_LABELS[value]
    start, _, end = value.partition("..")
    local = [
        _moment(part).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M") if part else "" for part in (start, end)
    ]
    return f"{local[0] or 'beginning'} to {local[1] or 'now'}"


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _problem(each: Field, value: str, problems: list[str]) -> bool:
    """Add what is wrong with a value, and return whether something is."""
    if each.kind == "choice" and each.options and value not in each.options:
        problems.append(f"{each.name} is {value!r}; expected one of {', '.join(each.options)}")
        return True
    if each.kind == "range" and parse_bounds(value) is None:
        problems.append(f"{each.name} is {value!r}; expected a range such as 0.5.. or 1..2")
        return True
    if each.kind == "attribute" and not value.partition("=")[0].strip():
        problems.append(f"{each.name} is {value!r}; it names no attribute")
        return True
    if each.kind == "attribute" and "=" not in value:
        problems.append(f"{each.name} is {value!r}; expected name=value, or name= for any value")
        return True
    return False


def _first(parameters: Mapping[str, Sequence[str]], name: str) -> str:
    return next(iter(parameters.get(name, ())), "")

"""Counters of one gateway process, as Prometheus text."""

from collections import Counter
from collections.abc import Mapping

_HELP = {
    "requests_total": "Answered chat requests by HTTP status; 499: the caller went away.",
    "request_seconds_total": "Time from a request's arrival to the end of its answer.",
    "repeated_total": "Requests asked again because a swap took the engine away.",
    "captures_total": "Choices whose tokens were stored, by whether they are complete.",
    "captures_lost_total": "Choices that were delivered although their tokens could not be stored.",
    "tokens_total": "Captured tokens.",
    "deployments_total": "Deployments by how they were done.",
    "captures_rejected_total": "Stored captures that could not become rows; kept in gateway/rejected.jsonl.",
    "captures_inserted_total": "Captures that reached ClickHouse.",
}


class Metrics:
    """Counters by name and labels."""

    def __init__(self) -> None:
        self._counters: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[tuple[str, str], float] = {}

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to the counter ``spanloop_gateway_<name>``."""
        self._counters[name, _labels(labels)] += amount

    def add_seconds(self, name: str, seconds: float) -> None:
        """Add to a counter of seconds."""
        self._seconds[name, ""] = self._seconds.get((name, ""), 0.0) + seconds

    def value(self, name: str, **labels: str) -> int:
        """A counter's value."""
        return self._counters[name, _labels(labels)]

    def text(self, gauges: Mapping[str, float]) -> str:
        """All counters, and the given gauges, in the exposition format 0.0.4."""
        lines: list[str] = []
        seen: set[str] = set()
        for (name, labels), value in sorted([*self._counters.items(), *self._seconds.items()]):
            if name not in seen:
                seen.add(name)
                help_text = _HELP.get(name, name)
                lines += [f"# HELP spanloop_gateway_{name} {help_text}", f"# TYPE spanloop_gateway_{name} counter"]
            lines.append(f"spanloop_gateway_{name}{labels} {value}")
        for name, gauge in gauges.items():
            lines += [f"# TYPE spanloop_gateway_{name} gauge", f"spanloop_gateway_{name} {gauge}"]
        return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{{{pairs}}}" if pairs else ""

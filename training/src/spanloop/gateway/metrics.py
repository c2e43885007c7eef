"""Counters of one gateway process in Prometheus' text format."""

from collections import Counter
from collections.abc import Mapping

_HELP = {
    "requests_total": "Chat requests by HTTP status; 499: the client disconnected.",
    "request_seconds_total": "Time from a request's arrival to the end of its response.",
    "repeated_total": "Requests sent to the engine again after a weight swap preempted them.",
    "canary_fallbacks_total": "Calls that the champion answered because the candidate of a canary failed.",
    "shadow_answers_total": "Copies of calls that a shadow candidate got, by whether it failed.",
    "shadow_skipped_total": "Copies that were not sent, because eight were running.",
    "captures_total": "Choices whose tokens were stored, by completeness.",
    "captures_lost_total": "Choices that were delivered, but whose tokens could not be stored.",
    "tokens_total": "Captured tokens.",
    "deployments_total": "Deployments by method.",
    "captures_rejected_total": "Captures that could not become rows; kept in gateway/rejected.jsonl.",
    "captures_inserted_total": "Captures inserted into ClickHouse.",
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
        """Return a counter's value."""
        return self._counters[name, _labels(labels)]

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all counters and the given gauges in the exposition format 0.0.4."""
        lines: list[str] = []
        described: set[str] = set()
        for (name, labels), value in sorted([*self._counters.items(), *self._seconds.items()]):
            if name not in described:
                described.add(name)
                help_text = _HELP.get(name, name)
                lines += [f"# HELP spanloop_gateway_{name} {help_text}", f"# TYPE spanloop_gateway_{name} counter"]
            lines.append(f"spanloop_gateway_{name}{labels} {value}")
        for name, gauge in gauges.items():
            lines += [f"# TYPE spanloop_gateway_{name} gauge", f"spanloop_gateway_{name} {gauge}"]
        return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{{{pairs}}}" if pairs else ""

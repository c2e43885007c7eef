"""The dashboard's metrics in the Prometheus text format."""

from collections import Counter

from spanloop.dashboard import visits

from .sessions import Sessions


class FrontMetrics:
    """Counts logins and refused requests."""

    def __init__(self) -> None:
        self._logins: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def count_login(self, result: str) -> None:
        """Count an attempt to log in: ok, failed or limited."""
        self._logins[result] += 1

    def count_refused(self, status: int) -> None:
        """Count a request to a page that was refused."""
        self._refused[str(status)] += 1

    def render(self, sessions: Sessions) -> str:
        """Return the text."""
        lines = [
            *_metric("logins_total", "counter", "Attempts to log in, by result.", _labelled("result", self._logins)),
            *_metric(
                "refused_requests_total",
                "counter",
                "Requests to pages that were refused, by HTTP status.",
                _labelled("status", self._refused),
            ),
            *_metric("sessions", "gauge", "Sessions of users who logged in.", {"": sessions.count}),
            *_metric("open_pages", "gauge", "Pages that browsers have open.", {"": visits.open_visits()}),
        ]
        return "\n".join(lines) + "\n"


def _labelled(label: str, counts: Counter[str]) -> dict[str, int]:
    return {f'{{{label}="{value}"}}': count for value, count in sorted(counts.items())}


def _metric(name: str, kind: str, text: str, samples: dict[str, int]) -> list[str]:
    full_name = f"spanloop_dashboard_{name}"
    values = [f"{full_name}{labels} {value}" for labels, value in samples.items()]
    return [f"# HELP {full_name} {text}", f"# TYPE {full_name} {kind}", *values]

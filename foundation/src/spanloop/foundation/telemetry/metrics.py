"""Metrics of one process, rendered in the Prometheus text format 0.0.4.

Invariant: a counter never decreases while the process runs, and the text has type and description of every metric.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of a histogram's buckets; a block of 10,000 spans takes a few tenths of a second."""

MEDIA_TYPE: Final = "text/plain; version=0.0.4"

Families = Mapping[str, tuple[str, str]]
"""Name of a metric → its type (counter, gauge or histogram) and its description."""

Labels = tuple[tuple[str, str], ...]


class Histogram:
    """Counts durations by bucket."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    @property
    def count(self) -> int:
        """Number of durations."""
        return sum(self.buckets)

    def observe(self, seconds: float) -> None:
        """Add a duration."""
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def quantile_s(self, share: float) -> float:
        """Return the upper bound of the quantile's bucket; infinity above the last bucket, 0 without durations."""
        required, seen = share * self.count, 0
        for bound_s, count in zip((*BOUNDS_S, float("inf")), self.buckets, strict=True):
            seen += count
            if seen and seen >= required:
                return bound_s
        return 0.0


class Metrics:
    """Counters, gauges and histograms of one process; safe to share between threads.

    Args:
        prefix: Of all names, such as ``spanloop_collector_``.
        families: All metrics. A histogram has no labels.
    """

    def __init__(self, prefix: str, families: Families) -> None:
        self._prefix = prefix
        self._families = families
        self._lock = threading.Lock()
        self._values: dict[tuple[str, Labels], float] = {}
        self._histograms = {name: Histogram() for name, (kind, _) in families.items() if kind == "histogram"}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self._check(name)
        if amount:
            key = (name, tuple(sorted(labels.items())))
            with self._lock:
                self._values[key] = self._values.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge, or a counter that is counted elsewhere."""
        self._check(name)
        with self._lock:
            self._values[name, tuple(sorted(labels.items()))] = value

    def observe(self, name: str, seconds: float) -> None:
        """Add a duration to a histogram."""
        with self._lock:
            self._histograms[name].observe(seconds)

    def sum_by(self, name: str, label: str) -> dict[str, int]:
        """Sum a counter's values by one of its labels."""
        totals: Counter[str] = Counter()
        with self._lock:
            for (counter, labels), value in self._values.items():
                if counter == name:
                    totals[dict(labels).get(label, "")] += int(value)
        return dict(sorted(totals.items()))

    def latency(self, name: str) -> dict[str, float | int | None]:
        """Return a histogram's count and mean, and upper bounds of its median and 99th percentile.

        A bound is None when it is above the last bucket.
        """
        with self._lock:
            histogram = self._histograms[name]
            count = histogram.count
            p50_s, p99_s = histogram.quantile_s(0.5), histogram.quantile_s(0.99)
            return {
                "count": count,
                "mean_s": round(histogram.sum_s / count, 6) if count else 0.0,
                "p50_s": p50_s if p50_s <= BOUNDS_S[-1] else None,
                "p99_s": p99_s if p99_s <= BOUNDS_S[-1] else None,
            }

    def get(self, name: str, **labels: str) -> float:
        """Return a counter's or gauge's value; 0 when it was never set."""
        with self._lock:
            return self._values.get((name, tuple(sorted(labels.items()))), 0)

    def render(self) -> str:
        """Return all metrics as text."""
        with self._lock:
            samples = sorted(self._values.items())
            return "".join(
                f"# HELP {self._prefix}{name} {text}\n# TYPE {self._prefix}{name} {kind}\n"
                + "".join(f"{self._prefix}{line}\n" for line in self._lines(name, samples))
                for name, (kind, text) in self._families.items()
            )

    def _lines(self, name: str, samples: Iterable[tuple[tuple[str, Labels], float]]) -> Iterable[str]:
        if name in self._histograms:
            return _histogram_lines(name, self._histograms[name])
        return [f"{name}{_label_text(labels)} {value}" for (sample, labels), value in samples if sample == name]

    def _check(self, name: str) -> None:
        if name not in self._families:
            raise ValueError(f"no metric is named {name!r}; expected one of {', '.join(self._families)}")


def _histogram_lines(name: str, histogram: Histogram) -> Iterable[str]:
    seen = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), histogram.buckets, strict=True):
        seen += count
        yield f'{name}_bucket{{le="{bound}"}} {seen}'
    yield f"{name}_sum {histogram.sum_s}"
    yield f"{name}_count {seen}"


def _label_text(labels: Labels) -> str:
    pairs = ",".join(f'{key}="{_escape(label)}"' for key, label in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escape(label: str) -> str:
    return label.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

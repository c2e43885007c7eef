"""Format numbers, durations and ids for pages; colours. Callers pass the current time."""

from datetime import datetime
from typing import Final

DASH: Final = "\N{EN DASH}"
"""Shown for an unknown value; never for zero."""

RED: Final = "#e5484d"
GREEN: Final = "#30a46c"
BLUE: Final = "#3b82f6"
AMBER: Final = "#d98a1f"
GREY: Final = "#8b8d98"

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def count(value: int) -> str:
    """Return ``value`` with thousands separators up to five digits, then as k, M or G with one decimal."""
    magnitude = abs(value)
    for suffix, size in (("G", 1_000_000_000), ("M", 1_000_000), ("k", 100_000)):
        if magnitude >= size:
            divisor = 1_000 if suffix == "k" else size
            return f"{value / divisor:,.1f} {suffix}"
    return f"{value:,}"


def duration(nanoseconds: int) -> str:
    """Return a duration with two or three significant digits: ``840 µs``, ``12.3 ms``, ``4.20 s``, ``3 min 05 s``."""
    if nanoseconds < 1_000_000:
        return f"{nanoseconds / 1_000:.0f} µs"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1_000_000:.3g} ms" if nanoseconds < 999_500_000 else "1.00 s"
    seconds = nanoseconds / 1_000_000_000
    if seconds < 59.95:
        return f"{seconds:.3g} s" if seconds >= 10 else f"{seconds:.2f} s"
    rounded_s = round(seconds)
    if rounded_s < 3_600:
        return f"{rounded_s // 60} min {rounded_s % 60:02d} s"
    return f"{rounded_s // 3_600} h {rounded_s % 3_600 // 60:02d} min"


def money(value: float | None, currency: str) -> str:
    """Return an amount with two decimals, a small one with two significant digits; a dash for None."""
    if value is None:
        return DASH
    return f"{value:,.2f} {currency}" if value >= 0.1 or not value else f"{value:.2g} {currency}"


def ago(moment: datetime | None, now: datetime) -> str:
    """Return how long before ``now`` a moment was, in its largest unit; both need a time zone."""
    if moment is None:
        return DASH
    seconds = (now - moment).total_seconds()
    if seconds < 0:
        return f"in {_largest_unit(-seconds)}" if seconds <= -1 else "now"
    return f"{_largest_unit(seconds)} ago" if seconds >= 1 else "now"


def percent(part: int, total: int) -> str:
    """Return ``part`` of ``total`` in percent; a dash when ``total`` is 0."""
    return f"{100 * part / total:.0f} %" if total else DASH


def share(value: float, digits: int = 1) -> str:
    """Return a share between 0 and 1 in percent."""
    return f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 3) -> str:
    """Return ``value`` with ``digits`` significant digits; a dash for None."""
    return DASH if value is None else f"{value:.{digits}g}"


def signed(value: float | None) -> str:
    """Return a reward with its sign; a dash for None."""
    return DASH if value is None else f"{value:+.3g}" if value else "0"


def short_id(identifier: str, length: int = 10) -> str:
    """Return the first ``length`` characters, with an ellipsis when the rest is cut."""
    return identifier if len(identifier) <= length + 1 else f"{identifier[:length]}…"


def one_line(text: str, length: int) -> str:
    """Return ``text`` on one line, cut to ``length`` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= length else f"{joined[: length - 1]}…"


def _largest_unit(seconds: float) -> str:
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "0 s"

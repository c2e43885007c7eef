"""Record the memory use of a job's processes, for the error message when the kernel kills one."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import psutil

_EVERY_S: Final = 2.0
_GB: Final = 1e9
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class MemoryUse(NamedTuple):
    """Largest use and smallest free memory, in bytes."""

    used_bytes: int
    """Use of the job's processes together; shared memory counts once, for the largest."""
    available_bytes: int
    """Free memory of the machine, without swapping."""
    limit_bytes: int
    """Memory of the machine, or of the container if it has less."""

    def __str__(self) -> str:
        used, left, limit = (f"{size_bytes / _GB:.1f} GB" for size_bytes in self)
        return f"Its processes used up to {used} of {limit}; the machine had {left} left at the least."


class MemoryWatch:
    """Samples memory use at most every two seconds.

    Args:
        pids: Returns the current processes of the job.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self._pids = pids
        self._next_look_s = 0.0
        self._most_used = 0
        self._least_available: int | None = None

    def look(self) -> None:
        """Take a sample when one is due."""
        if time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + _EVERY_S
        self._most_used = max(self._most_used, _used_bytes(self._pids()))
        available = psutil.virtual_memory().available
        self._least_available = min(available, self._least_available or available)

    @property
    def use(self) -> MemoryUse | None:
        """The recorded extremes; None before the first sample."""
        if self._least_available is None:
            return None
        return MemoryUse(self._most_used, self._least_available, _limit_bytes())


def _used_bytes(pids: Iterable[int]) -> int:
    private, shared = 0, 0
    for pid in pids:
        try:
            memory = psutil.Process(pid).memory_info()
        except psutil.Error:
            continue  # the process has ended
        private += memory.rss - memory.shared
        shared = max(shared, memory.shared)
    return private + shared


def _limit_bytes() -> int:
    total = int(psutil.virtual_memory().total)
    try:
        text = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return total
    return min(total, int(text)) if text.isdigit() else total

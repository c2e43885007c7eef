"""CPU time, memory and writes of processes, as the kernel counts them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil


class Usage(NamedTuple):
    """Resources that processes used over a phase."""

    cpu_s: float
    written_bytes: int
    """Bytes that the processes sent to the storage layer (``write_bytes`` of ``/proc/PID/io``)."""
    write_calls: int
    """System calls that write to files (``syscw``): an upper limit of the disk's operations, which the kernel joins."""
    peak_bytes: int
    """Largest resident set of one process."""

    def per(self, spans: int) -> "Usage":
        """Return the usage for a million spans; the peak stays as it is."""
        factor = 1_000_000 / spans
        return Usage(
            self.cpu_s * factor,
            round(self.written_bytes * factor),
            round(self.write_calls * factor),
            self.peak_bytes,
        )


class Meter:
    """Measure processes from now on; their peak of memory starts anew."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = tuple(pids)
        for pid in self._pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before = self._totals()

    def usage(self) -> Usage:
        """Return the resources since the meter was made."""
        totals = self._totals()
        return Usage(
            totals.cpu_s - self._before.cpu_s,
            totals.written_bytes - self._before.written_bytes,
            totals.write_calls - self._before.write_calls,
            totals.peak_bytes,
        )

    def _totals(self) -> Usage:
        each = [_totals(pid) for pid in self._pids]
        return Usage(
            sum(one.cpu_s for one in each),
            sum(one.written_bytes for one in each),
            sum(one.write_calls for one in each),
            max(one.peak_bytes for one in each),
        )


def _totals(pid: int) -> Usage:
    times, counters = psutil.Process(pid).cpu_times(), _fields(pid, "io")
    peak_kib = int(_fields(pid, "status")["VmHWM"].split()[0])
    return Usage(times.user + times.system, int(counters["write_bytes"]), int(counters["syscw"]), peak_kib * 1024)


def _fields(pid: int, name: str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

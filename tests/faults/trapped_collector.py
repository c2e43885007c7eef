"""The real collector, which kills itself with SIGKILL when it passes a named point for the n-th time.

``python trapped_collector.py POINT:PHASE:NTH DIED_FILE ANSWER_TIMEOUT_S ARGUMENTS…``; an empty first argument sets no
trap. The collector has no hook for this: the calls that it makes to the operating system are wrapped here, before it
starts, so what runs in production carries nothing. A point is an operation and what it works on; a phase is ``before``,
``torn`` (half of the bytes are written) or ``after``. The name is appended to DIED_FILE right before the kill.

Points: create, write, sync, cut, delete and read of a ``segment``; write and sync of the ``cursor``; sync of a
``directory`` and of another ``file``; ``send insert`` and ``answer insert``, an INSERT to ClickHouse and its answer;
``answer``, the 200 of a request.
"""

import asyncio.selector_events
import http.client
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import clickhouse_connect

from spanloop.collector import __main__ as collector

INSERT_MARK = "insert_deduplication_token"


class Trap:
    """Counts how often a point was passed, and kills the process at the n-th time."""

    def __init__(self, spec: str, died: Path) -> None:
        point, phase, nth = spec.rsplit(":", 2) if spec else ("", "", "0")
        self.point, self.phase, self._left = point, phase, int(nth)
        self._died = died
        self._lock = threading.Lock()

    def passes(self, point: str, phase: str) -> None:
        """Die here, if this is the point."""
        if self.is_next(point, phase):
            self.die()

    def is_next(self, point: str, phase: str) -> bool:
        """Count, and say whether this is the time."""
        if (point, phase) != (self.point, self.phase):
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0

    def die(self) -> NoReturn:
        """As kill -9 does it."""
        with self._died.open("a") as file:
            file.write(f"{self.point}:{self.phase}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL did not end the process")


class Kinds:
    """What each file descriptor works on."""

    def __init__(self) -> None:
        self._kinds: dict[int, str] = {}

    def note(self, fd: int, path: Any) -> None:
        self._kinds[fd] = self.of_path(path)

    def of_path(self, path: Any) -> str:
        name = Path(os.fsdecode(path))
        if name.suffix == ".segment":
            return "segment"
        if name.is_dir():
            return "directory"
        return "cursor" if name.name == "cursor" else "file"

    def of(self, fd: int) -> str:
        return self._kinds.get(fd, "file")


def set_trap(trap: Trap) -> None:
    """Wrap what a collector does to its disk, to ClickHouse and to its senders."""
    kinds = Kinds()
    wrap_disk(trap, kinds)
    wrap_writes(trap, kinds)
    wrap_inserts(trap)
    wrap_answers(trap)


def wrap_disk(trap: Trap, kinds: Kinds) -> None:
    def around(name: str, verb: str, kind_of: Callable[[Any], str]) -> None:
        real = getattr(os, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            point = f"{verb} {kind_of(arguments[0])}"
            trap.passes(point, "before")
            result = real(*arguments, **named)
            trap.passes(point, "after")
            return result

        setattr(os, name, wrapped)

    around("fdatasync", "sync", kinds.of)
    around("fsync", "sync", kinds.of)
    around("ftruncate", "cut", kinds.of)
    around("pread", "read", kinds.of)
    around("unlink", "delete", kinds.of_path)
    real_open = os.open

    def opening(path: Any, flags: int, mode: int = 0o777, **named: Any) -> int:
        is_new = bool(flags & os.O_CREAT) and not Path(path).exists()
        point = f"create {kinds.of_path(path)}" if is_new else ""
        trap.passes(point, "before")
        fd = real_open(path, flags, mode, **named)
        kinds.note(fd, path)
        trap.passes(point, "after")
        return fd

    os.open = opening


def wrap_writes(trap: Trap, kinds: Kinds) -> None:
    def around(name: str, half: Callable[[Any], Any]) -> None:
        real = getattr(os, name)

        def wrapped(fd: int, data: Any, *rest: Any) -> Any:
            point = f"write {kinds.of(fd)}"
            trap.passes(point, "before")
            if trap.is_next(point, "torn"):
                real(fd, half(data), *rest)
                trap.die()
            result = real(fd, data, *rest)
            trap.passes(point, "after")
            return result

        setattr(os, name, wrapped)

    def half_of_bytes(data: bytes) -> bytes:
        return data[: len(data) // 2]

    def half_of_pieces(pieces: Sequence[bytes | memoryview]) -> list[bytes]:
        whole = b"".join(pieces)
        return [whole[: len(whole) // 2]]

    around("write", half_of_bytes)
    around("pwrite", half_of_bytes)
    around("writev", half_of_pieces)
    around("pwritev", half_of_pieces)


def wrap_inserts(trap: Trap) -> None:
    real_put = http.client.HTTPConnection.putrequest
    real_get = http.client.HTTPConnection.getresponse
    real_send = http.client.HTTPConnection.send
    inserting: set[int] = set()

    def putrequest(self: http.client.HTTPConnection, method: str, url: str, *rest: Any, **named: Any) -> Any:
        inserting.discard(id(self))
        if INSERT_MARK in url:
            inserting.add(id(self))
            trap.passes("send insert", "before")
        return real_put(self, method, url, *rest, **named)

    def send(self: http.client.HTTPConnection, data: Any) -> None:
        if id(self) in inserting and isinstance(data, bytes) and trap.is_next("send insert", "torn"):
            real_send(self, data[: len(data) // 2])
            trap.die()
        real_send(self, data)

    def getresponse(self: http.client.HTTPConnection) -> Any:
        if id(self) not in inserting:
            return real_get(self)
        trap.passes("answer insert", "before")
        response = real_get(self)
        trap.passes("answer insert", "after")
        return response

    http.client.HTTPConnection.putrequest = putrequest  # type: ignore[method-assign]
    http.client.HTTPConnection.send = send  # type: ignore[method-assign]
    http.client.HTTPConnection.getresponse = getresponse  # type: ignore[method-assign]


def wrap_answers(trap: Trap) -> None:
    transport: Any = vars(asyncio.selector_events)["_SelectorSocketTransport"]
    real = transport.write

    def write(self: Any, data: bytes) -> None:
        is_answer = bytes(data[:12]) == b"HTTP/1.1 200"
        if is_answer:
            trap.passes("answer", "before")
        real(self, data)
        if is_answer:
            trap.passes("answer", "after")

    transport.write = write


def wait_less_for_clickhouse(answer_timeout_s: int) -> None:
    """Five minutes are too long for a test."""
    real: Any = vars(clickhouse_connect)["get_client"]

    def get_client(**named: Any) -> Any:
        return real(**{**named, "send_receive_timeout": answer_timeout_s})

    clickhouse_connect.get_client = get_client


def main() -> int:
    spec, died, answer_timeout_s, *arguments = sys.argv[1:]
    wait_less_for_clickhouse(int(answer_timeout_s))
    set_trap(Trap(spec, Path(died)))
    return collector.main(arguments)


if __name__ == "__main__":
    sys.exit(main())

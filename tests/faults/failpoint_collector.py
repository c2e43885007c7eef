"""The real collector, which sends itself SIGKILL when it passes a failpoint for the n-th time.

``python failpoint_collector.py POINT:PHASE:NTH DIED_FILE RESPONSE_TIMEOUT_S ARGUMENTS…``; an empty first argument sets
no failpoint. The production code has no hook for this: its system calls are wrapped here before it starts. A point is
an operation and its object; a phase is ``before``, ``torn`` (half of the bytes are written) or ``after``. The name is
appended to DIED_FILE before the kill.

Points: create, write, sync, cut, delete and read of a ``segment``; write and sync of the ``cursor``; sync of a
``directory`` and of another ``file``; ``send insert`` and ``answer insert``, an INSERT to ClickHouse and its response;
``answer``, the 200 that acknowledges a request.
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


class Failpoint:
    """Counts how often a point is passed, and kills the process at the n-th time."""

    def __init__(self, spec: str, died_file: Path) -> None:
        point, phase, nth = spec.rsplit(":", 2) if spec else ("", "", "0")
        self.point, self.phase, self._left = point, phase, int(nth)
        self._died_file = died_file
        self._lock = threading.Lock()

    def passes(self, point: str, phase: str) -> None:
        """Kill the process if this is the point and the n-th time."""
        if self.is_next(point, phase):
            self.die()

    def is_next(self, point: str, phase: str) -> bool:
        """Count, and return whether this is the n-th time."""
        if (point, phase) != (self.point, self.phase):
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0

    def die(self) -> NoReturn:
        """Send SIGKILL to this process."""
        with self._died_file.open("a") as file:
            file.write(f"{self.point}:{self.phase}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL did not end the process")


class Kinds:
    """The kind of file of each descriptor."""

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


def set_failpoint(failpoint: Failpoint) -> None:
    """Wrap the collector's calls to its disk, to ClickHouse and to its clients."""
    kinds = Kinds()
    wrap_disk(failpoint, kinds)
    wrap_writes(failpoint, kinds)
    wrap_inserts(failpoint)
    wrap_responses(failpoint)


def wrap_disk(failpoint: Failpoint, kinds: Kinds) -> None:
    def around(name: str, verb: str, kind_of: Callable[[Any], str]) -> None:
        real = getattr(os, name)

        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            point = f"{verb} {kind_of(arguments[0])}"
            failpoint.passes(point, "before")
            result = real(*arguments, **keywords)
            failpoint.passes(point, "after")
            return result

        setattr(os, name, wrapped)

    around("fdatasync", "sync", kinds.of)
    around("fsync", "sync", kinds.of)
    around("ftruncate", "cut", kinds.of)
    around("pread", "read", kinds.of)
    around("unlink", "delete", kinds.of_path)
    real_open = os.open

    def opening(path: Any, flags: int, mode: int = 0o777, **keywords: Any) -> int:
        is_new = bool(flags & os.O_CREAT) and not Path(path).exists()
        point = f"create {kinds.of_path(path)}" if is_new else ""
        failpoint.passes(point, "before")
        fd = real_open(path, flags, mode, **keywords)
        kinds.note(fd, path)
        failpoint.passes(point, "after")
        return fd

    os.open = opening


def wrap_writes(failpoint: Failpoint, kinds: Kinds) -> None:
    def around(name: str, half: Callable[[Any], Any]) -> None:
        real = getattr(os, name)

        def wrapped(fd: int, data: Any, *rest: Any) -> Any:
            point = f"write {kinds.of(fd)}"
            failpoint.passes(point, "before")
            if failpoint.is_next(point, "torn"):
                real(fd, half(data), *rest)
                failpoint.die()
            result = real(fd, data, *rest)
            failpoint.passes(point, "after")
            return result

        setattr(os, name, wrapped)

    def half_of_bytes(data: bytes) -> bytes:
        return data[: len(data) // 2]

    def half_of_buffers(buffers: Sequence[bytes | memoryview]) -> list[bytes]:
        joined = b"".join(buffers)
        return [joined[: len(joined) // 2]]

    around("write", half_of_bytes)
    around("pwrite", half_of_bytes)
    around("writev", half_of_buffers)
    around("pwritev", half_of_buffers)


def wrap_inserts(failpoint: Failpoint) -> None:
    real_put = http.client.HTTPConnection.putrequest
    real_get = http.client.HTTPConnection.getresponse
    real_send = http.client.HTTPConnection.send
    inserting: set[int] = set()

    def putrequest(self: http.client.HTTPConnection, method: str, url: str, *rest: Any, **keywords: Any) -> Any:
        inserting.discard(id(self))
        if INSERT_MARK in url:
            inserting.add(id(self))
            failpoint.passes("send insert", "before")
        return real_put(self, method, url, *rest, **keywords)

    def send(self: http.client.HTTPConnection, data: Any) -> None:
        if id(self) in inserting and isinstance(data, bytes) and failpoint.is_next("send insert", "torn"):
            real_send(self, data[: len(data) // 2])
            failpoint.die()
        real_send(self, data)

    def getresponse(self: http.client.HTTPConnection) -> Any:
        if id(self) not in inserting:
            return real_get(self)
        failpoint.passes("answer insert", "before")
        response = real_get(self)
        failpoint.passes("answer insert", "after")
        return response

    http.client.HTTPConnection.putrequest = putrequest  # type: ignore[method-assign]
    http.client.HTTPConnection.send = send  # type: ignore[method-assign]
    http.client.HTTPConnection.getresponse = getresponse  # type: ignore[method-assign]


def wrap_responses(failpoint: Failpoint) -> None:
    transport: Any = vars(asyncio.selector_events)["_SelectorSocketTransport"]
    real = transport.write

    def write(self: Any, data: bytes) -> None:
        is_response = bytes(data[:12]) == b"HTTP/1.1 200"
        if is_response:
            failpoint.passes("answer", "before")
        real(self, data)
        if is_response:
            failpoint.passes("answer", "after")

    transport.write = write


def shorten_clickhouse_timeout(response_timeout_s: int) -> None:
    """Replace the client's timeout of five minutes, which is too long for a test."""
    real: Any = vars(clickhouse_connect)["get_client"]

    def get_client(**keywords: Any) -> Any:
        return real(**{**keywords, "send_receive_timeout": response_timeout_s})

    clickhouse_connect.get_client = get_client


def main() -> int:
    spec, died_file, response_timeout_s, *arguments = sys.argv[1:]
    shorten_clickhouse_timeout(int(response_timeout_s))
    set_failpoint(Failpoint(spec, Path(died_file)))
    return collector.main(arguments)


if __name__ == "__main__":
    sys.exit(main())

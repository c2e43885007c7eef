"""Senders that do nothing but wait for answers: one process, many connections, requests made beforehand.

A request costs them a quarter of what reading it costs the server, so that the server is what is measured.
"""

import itertools
import select
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_HEAD: Final = (
    b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n"
)
_ANSWER_BYTES: Final = 65536
_TIMEOUT_S: Final = 60.0


class FlatOut(NamedTuple):
    """What became of it."""

    requests: int
    wall_s: float
    waited_s: Sequence[float]
    """From each request to its answer, sorted."""
    cpu_s: float
    """The senders' own."""


def send_flat_out(port: int, bodies: Sequence[bytes], connections: int, seconds: float) -> FlatOut:
    """Each connection sends the next body as soon as it has the answer to the one before, again and again."""
    requests = itertools.cycle([_HEAD % len(body) + body for body in bodies])
    sockets = [socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) for _ in range(connections)]
    answers = select.epoll()
    by_fd = {each.fileno(): each for each in sockets}
    for fd in by_fd:
        answers.register(fd, select.EPOLLIN)
    start_s, cpu_before_s = time.perf_counter(), time.process_time()
    waited_s = sorted(_rounds(by_fd, answers, requests, start_s + seconds))
    wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_before_s
    for each in sockets:
        each.close()
    answers.close()
    return FlatOut(len(waited_s), wall_s, waited_s, cpu_s)


def _rounds(
    sockets: dict[int, socket.socket], answers: "select.epoll", requests: Iterator[bytes], end_s: float
) -> Iterator[float]:
    sent_s: dict[int, float] = {}
    for fd, each in sockets.items():
        sent_s[fd] = time.perf_counter()
        each.sendall(next(requests))
    while sent_s:
        ready = answers.poll(_TIMEOUT_S)
        if not ready:
            raise SystemExit(f"no answer to {len(sent_s)} requests in {_TIMEOUT_S:.0f} s")
        for fd, _ in ready:
            answer = sockets[fd].recv(_ANSWER_BYTES)
            if not answer.startswith(b"HTTP/1.1 200 "):
                raise SystemExit(f"a request was answered with {answer[:80]!r}")
            now_s = time.perf_counter()
            yield now_s - sent_s.pop(fd)
            if now_s < end_s:
                sent_s[fd] = now_s
                sockets[fd].sendall(next(requests))

"""Reading the response of an engine that sends its parts fast."""

import asyncio
import socket

from spanloop.gateway.client.connection import Connection
from spanloop.gateway.client.pacing import INTERVAL_S, Pacer

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class StoppedClock(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when a test sets it."""

    now_s = 0.0

    def time(self) -> float:
        """Return the time that was set."""
        return self.now_s


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def read_parts(loop: StoppedClock, pause_s: float) -> list[bytes]:
    """Receive ten parts of a stream, ``pause_s`` apart, and its end; return the parts as they were read."""
    left, right = socket.socketpair()
    parts = list[bytes]()
    _, connection = await loop.create_connection(lambda: Connection(loop, Pacer()), sock=left)

    async def read() -> None:
        while part := await connection.read():
            parts.append(part)

    connection.send(b"")
    reader = asyncio.create_task(read())
    right.send(HEAD)
    for number in range(10):
        right.send(b"1\r\n%d\r\n" % number)
        await settle()
        assert number > 3 or parts[number] == b"%d" % number
        loop.now_s += pause_s
    right.send(b"1\r\na\r\n0\r\n\r\n")
    loop.now_s += INTERVAL_S
    await settle()
    assert reader.done()
    await reader
    assert connection.is_reusable
    connection.abort()
    right.close()
    await settle()
    return parts


def read_with_stopped_clock(pause_s: float) -> list[bytes]:
    with asyncio.Runner(loop_factory=StoppedClock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, StoppedClock)
        return runner.run(read_parts(loop, pause_s))


def test_parts_of_a_fast_stream_are_read_together_those_of_its_beginning_at_once() -> None:
    *first, last = read_with_stopped_clock(0.0)
    assert [*first, last] == [b"0", b"1", b"2", b"3", b"4", b"56789a"]


def test_each_part_of_a_slow_stream_is_read_at_once() -> None:
    assert read_with_stopped_clock(2 * INTERVAL_S) == [b"%x" % number for number in range(11)]

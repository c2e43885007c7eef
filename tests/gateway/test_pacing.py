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


async def read_parts(loop: StoppedClock, pause_s: float) -> None:
    """Receive ten parts of a stream, ``pause_s`` apart, and check when they are read."""
    left, right = socket.socketpair()
    pacer, parts = Pacer(), list[bytes]()
    _, connection = await loop.create_connection(lambda: Connection(loop, pacer), sock=left)

    async def read() -> None:
        while part := await connection.read():
            parts.append(part)

    connection.send(b"")
    reader = asyncio.create_task(read())
    connection.data_received(HEAD)
    for number in range(10):
        connection.data_received(b"1\r\n%d\r\n" % number)
        await settle()
        assert number > 3 or parts[number] == b"%d" % number
        loop.now_s += pause_s
    await settle()
    assert len(parts) == 10 if pause_s >= INTERVAL_S else len(parts) < 10
    loop.now_s += INTERVAL_S
    await settle()
    assert b"".join(parts) == b"0123456789"
    connection.data_received(b"1\r\na\r\n0\r\n\r\n")
    await settle()
    assert parts[-1] == b"a"
    await reader
    connection.abort()
    right.close()
    await settle()


def test_parts_of_a_fast_stream_are_read_together_its_beginning_and_its_end_at_once() -> None:
    with asyncio.Runner(loop_factory=StoppedClock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, StoppedClock)
        runner.run(read_parts(loop, 0.0))


def test_each_part_of_a_slow_stream_is_read_at_once() -> None:
    with asyncio.Runner(loop_factory=StoppedClock) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, StoppedClock)
        runner.run(read_parts(loop, 2 * INTERVAL_S))

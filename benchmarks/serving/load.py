"""A closed-loop load of chat requests on raw asyncio, and the CPU time that a server process spends on it."""

import asyncio
import json
import time
from typing import Any, Final, NamedTuple

import psutil

_MESSAGES: Final = [{"role": "user", "content": "What is the cost of the pine mirror?"}]


class LoadResult(NamedTuple):
    """One load."""

    cpu_ms: float
    """CPU time of the server process for one request, its threads included."""
    requests_per_s: float
    first_p50_ms: float
    """From the request to the first event of its stream, or to the whole response."""
    whole_p50_ms: float


async def run_load(port: int, pid: int, *, requests: int, clients: int, is_stream: bool, **fields: Any) -> LoadResult:
    """Send requests from several clients, each over one connection.

    Args:
        port: Of the server, on the loopback.
        pid: Of the server's process.
        requests: Number of requests in all.
        clients: Number of connections.
        is_stream: Whether streams are requested.
        fields: Further fields of the requests.

    Raises:
        RuntimeError: A response has another status than 200.
    """
    document = {"messages": _MESSAGES, "max_tokens": 64, "temperature": 1, "stream": is_stream, **fields}
    body = json.dumps(document).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    request = head + b"content-length: %d\r\n\r\n" % len(body) + body
    process = psutil.Process(pid)
    left = iter(range(requests))
    times: list[tuple[float, float]] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
        times.extend([await _call(reader, writer, request) for _ in left])
        writer.close()

    before, began_s = process.cpu_times(), time.monotonic()
    await asyncio.gather(*(client() for _ in range(clients)))
    elapsed_s, after = time.monotonic() - began_s, process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    first, whole = (sorted(column)[len(times) // 2] * 1000 for column in zip(*times, strict=True))
    return LoadResult(cpu_s / requests * 1000, requests / elapsed_s, first, whole)


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[float, float]:
    began_s = time.monotonic()
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise RuntimeError(f"the server answered {head!r}, expected the status 200")
    first_s = 0.0
    if b"content-length:" in head:
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
    else:
        while (size := int((await reader.readuntil(b"\r\n")).strip(), 16)) > 0:
            await reader.readexactly(size + 2)
            first_s = first_s or time.monotonic() - began_s
        await reader.readexactly(2)
    whole_s = time.monotonic() - began_s
    return first_s or whole_s, whole_s

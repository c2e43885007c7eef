"""The named baseline: a bare relay on raw asyncio that parses each event once and sends the bytes on as they came.

    python benchmarks/serving/relay.py ENGINE_PORT

It prints its port. It validates, records, rewrites and limits nothing.
"""

import asyncio
import json
import sys
from typing import Final

_IDLE: Final[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]] = []


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(_length(head))
            upstream = _IDLE.pop() if _IDLE else await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
            upstream[1].write(head + body)
            answer = await upstream[0].readuntil(b"\r\n\r\n")
            writer.write(answer)
            if b"chunked" in answer:
                await _relay_stream(upstream[0], writer)
            else:
                content = await upstream[0].readexactly(_length(answer))
                json.loads(content)
                writer.write(content)
            _IDLE.append(upstream)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _relay_stream(upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    tail, pending = b"", b""
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        data = await upstream.read(65536)
        writer.write(data)
        tail = (tail + data)[-16:]
        *events, pending = (pending + data).split(b"\n\n")
        for event in events:
            content = event.partition(b"data: ")[2]
            if content and content != b"[DONE]":
                json.loads(content)


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)


async def main() -> None:
    """Serve until the process ends."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

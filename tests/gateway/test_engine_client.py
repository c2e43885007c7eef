"""The HTTP client for engines."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.gateway.client import engine_client
from spanloop.gateway.client.connection import EngineConnectionError
from spanloop.gateway.client.engine_client import EngineClient
from spanloop.gateway.client.framing import FramingError, ResponseParser
from spanloop.gateway.client.json_codec import decode_json, encode_json

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@asynccontextmanager
async def engine(answer: Answer) -> AsyncGenerator[tuple[EngineClient, str, list[int]]]:
    """A client, and a server that counts its connections and lets ``answer`` answer each request."""
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(0)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
                connections[-1] += 1
                await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, EngineClient() as client:
        yield client, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x", connections


def answering(content: bytes) -> Answer:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)

    return answer


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(1, 30), max_size=60))
def test_chunks_are_decoded_from_any_cuts(chunks: list[bytes], cuts: list[int]) -> None:
    raw = CHUNKED + b"".join(f"{len(chunk):X};x=1\r\n".encode() + chunk + b"\r\n" for chunk in chunks)
    raw += b"0\r\na: b\r\n\r\n"
    response, content = ResponseParser(), b""
    for cut in cuts:
        assert raw or response.is_complete
        if raw:
            content += response.feed(raw[:cut])
        raw = raw[cut:]
    content += response.feed(raw) if raw else b""
    response.end()
    assert content == b"".join(chunks)
    assert response.head == (200, {"transfer-encoding": "chunked"}, True)


@pytest.mark.parametrize(
    "raw",
    [
        b"5\r\nab", b"x\r\n", b"-1\r\n", b"1\r\nabc\r\n", b"\r\n", b"fffffffffffffffff\r\n", b"0\r\n\r\nmore",
        b"1" * 10_000, b"+1\r\na\r\n", b"1_0\r\n", b"1\na\r\n",
    ],
)  # fmt: skip
def test_malformed_chunks_are_refused(raw: bytes) -> None:
    response = ResponseParser()
    with pytest.raises(FramingError):  # noqa: PT012 - either refuses
        response.feed(CHUNKED + raw)
        response.end()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/2 200 OK", b"nonsense", b"HTTP/1.1 200 OK\r\nno colon", b"HTTP/1.1 200 OK\r\n folded: x",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip", b"HTTP/1.1 099 OK", b"HTTP/1.1 101 Switching\r\nupgrade: x",
        b"HTTP/1.1 200 OK\r\nx: " + bytes(70_000).replace(b"\0", b"x"),
    ],
)  # fmt: skip
def test_a_malformed_head_is_refused(head: bytes) -> None:
    response = ResponseParser()
    with pytest.raises(FramingError):  # noqa: PT012 - either refuses
        for at in range(0, len(head), 5_000):
            response.feed(head[at : at + 5_000])
        response.feed(b"\r\n\r\n")


def test_header_fields_are_read_from_any_cuts() -> None:
    raw = b"HTTP/1.1 200 OK\r\nA: 1\r\nEmpty:\r\na:  two \r\nContent-Length: 0\r\n\r\n"
    for cut in range(len(raw)):
        response = ResponseParser()
        response.feed(raw[:cut])
        response.feed(raw[cut:])
        assert response.is_complete
        assert response.head == (200, {"a": "1, two", "empty": "", "content-length": "0"}, True)


@pytest.mark.parametrize(
    ("response", "connections"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", [3]),
        (CHUNKED + b"1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", [3]),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", [3]),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi", [1, 1, 1]),
        (CHUNKED.replace(b"\r\n\r\n", b"\r\ncontent-length: 9\r\n\r\n") + b"2\r\nhi\r\n0\r\n\r\n", [1, 1, 1]),
    ],
)
async def test_a_connection_is_used_again_after_a_response_with_a_certain_end(
    response: bytes, connections: list[int]
) -> None:
    async with engine(answering(response)) as (client, url, seen):
        for _ in range(3):
            assert (await client.request("POST", url, json={"a": 1})).text == "hi"
        assert seen == connections


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nto the end")
        writer.close()

    async with engine(answer) as (client, url, _):
        assert (await client.get(url)).text == "to the end"


@pytest.mark.parametrize(
    "response",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", CHUNKED + b"4\r\nhalf\r\n", b"rubbish\r\n\r\n"],
)
async def test_a_response_that_breaks_off_is_an_error(response: bytes) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response)
        writer.close()

    async with engine(answer) as (client, url, _):
        with pytest.raises(EngineConnectionError):
            await client.get(url)


async def test_leaving_a_response_early_closes_its_connection() -> None:
    is_closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"1\r\nx\r\n")
        assert await reader.read() == b""
        is_closed.set()

    async with engine(answer) as (client, url, _):
        async with client.stream("POST", url) as stream:
            assert await stream.read() == b"x"
        await asyncio.wait_for(is_closed.wait(), 60)
        is_closed.clear()
        with pytest.raises(EngineConnectionError, match="no response within"):
            await client.request("POST", url, timeout_s=0.05)
        await asyncio.wait_for(is_closed.wait(), 60)


async def test_an_idle_connection_is_dropped_before_the_engine_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")) as (client, url, seen):
        await client.get(url)
        monkeypatch.setattr(engine_client, "_IDLE_S", 0.0)
        await client.get(url)
        assert seen == [1, 1]


async def test_a_slow_reader_bounds_the_memory_of_its_stream() -> None:
    sent = 0

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(CHUNKED)
        for _ in range(400):
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            await writer.drain()
            sent += 65536
        writer.write(b"0\r\n\r\n")

    async with engine(answer) as (client, url, _), client.stream("GET", url) as stream:
        received = len(await stream.read())
        await asyncio.sleep(0.2)
        assert sent < 20 << 20
        while part := await stream.read():
            received += len(part)
        assert received == 400 * 65536


@pytest.mark.parametrize("text", ['"\\ud83d"', "NaN", "123456789012345678901234567890", '{"a":[1.5,"é\u2028"]}'])
def test_values_that_orjson_refuses_are_decoded_and_encoded(text: str) -> None:
    value = decode_json(text.encode())
    assert decode_json(encode_json(value)) == value or text == "NaN"


def test_a_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        decode_json(b"<html>")

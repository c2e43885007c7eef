# pyright: reportPrivateUsage=false
"""Requests that no client should send: each is answered or closed, none is a defect, and nothing of them is left."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from .support import RunningGateway, wait_until

PATHS: Final = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/v1/responses/resp_1",
    "/admin/deploy",
)
FIELDS: Final = (
    "model", "messages", "input", "prompt", "system", "tools", "tool_choice", "stream", "n", "max_tokens", "stop",
    "logprobs", "top_logprobs", "response_format", "text", "reasoning", "thinking", "include", "previous_response_id",
    "metadata", "stream_options", "user", "store", "instructions", "stop_sequences", "temperature",
)  # fmt: skip
CONCURRENT: Final = 16
DEADLINE_S: Final = 60.0


class Hostile:
    """Draws requests."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def request(self) -> tuple[bytes, int]:
        """The bytes of a request, and after how many of them the client leaves; -1: it stays."""
        chance = self._chance
        body, path = self._body(), chance.choice(PATHS)
        head = f"{chance.choice(['POST'] * 9 + ['GET', 'PUT'])} {path} HTTP/1.1\r\nhost: g\r\nconnection: close\r\n"
        if chance.random() < 0.1:
            head += chance.choice(
                [
                    f"x-session-id: {'s' * 5000}\r\n", "traceparent: \xff\xfe\r\n", "x-request-id: \x7f{}\r\n",
                    "authorization: Bearer \xe9\r\n", "baggage: session.id=%ff%fe,=;,\r\n",
                    "content-type: image/png\r\n",
                ]
            )  # fmt: skip
        if chance.random() < 0.2:
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in _parts(body, 999))
            raw = head.encode("latin-1") + b"transfer-encoding: chunked\r\n\r\n" + chunks
            # Some chunked bodies never end: the client leaves.
            return (raw, len(raw)) if chance.random() < 0.3 else (raw + b"0\r\n\r\n", -1)
        length = len(body) + chance.choice([0] * 9 + [50])
        raw = head.encode("latin-1") + f"content-length: {length}\r\n\r\n".encode() + body
        if length > len(body) or chance.random() < 0.15:
            return raw, chance.randint(1, len(raw))
        return raw, -1

    def _body(self) -> bytes:
        chance = self._chance
        make = chance.choice(
            [
                self._noise, self._nested, self._surrogates, self._giant_tools, self._one_odd_field, self._odd_fields,
                self._odd_value, self._cut,
            ]
        )  # fmt: skip
        return make()

    def _noise(self) -> bytes:
        return self._chance.randbytes(self._chance.randrange(200))

    def _nested(self) -> bytes:
        depth = self._chance.choice([10, 900, 1100, 20_000])
        return b'{"messages":' + b"[" * depth + b"]" * depth + b"}"

    def _surrogates(self) -> bytes:
        half = self._chance.choice(["\\ud800", "\\udfff\\ud800", "\\u0000", "\ufffd"])
        return json.dumps(self._valid()).replace("hi", half).encode()

    def _giant_tools(self) -> bytes:
        name = "f" * self._chance.choice([1, 70_000])
        tool = {"type": "function", "function": {"name": name, "parameters": self._schema(60)}}
        return json.dumps({**self._valid(), "tools": [tool] * self._chance.choice([1, 70])}).encode()

    def _one_odd_field(self) -> bytes:
        return json.dumps({**self._valid(), self._chance.choice(FIELDS): self._value(0)}).encode()

    def _odd_fields(self) -> bytes:
        return json.dumps({name: self._value(0) for name in self._chance.sample(FIELDS, 8)}).encode()

    def _odd_value(self) -> bytes:
        return json.dumps(self._value(0)).encode(self._chance.choice(["utf-8", "utf-16", "utf-32"]))

    def _cut(self) -> bytes:
        return json.dumps(self._valid()).encode()[: self._chance.randrange(5, 400)]

    def _valid(self) -> dict[str, Any]:
        messages = [{"role": "user", "content": "hi"}]
        stream = self._chance.random() < 0.5
        return self._chance.choice(
            [
                {"messages": messages, "stream": stream},
                {"messages": messages, "max_tokens": 5, "model": "stand-in", "stream": stream},
                {"input": "hi", "model": "stand-in", "stream": stream},
                {"prompt": "hi"},
            ]
        )

    def _schema(self, depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(depth):
            schema = {"type": "object", "properties": {"p": schema}}
        return schema

    def _value(self, depth: int) -> Any:
        chance = self._chance
        leaves: list[Any] = [None, True, -1, 0, 10**400, 1e308, float("nan"), "", "hi", "x" * 10_000, "\u2028", [], {}]
        if depth > 3 or chance.random() < 0.5:
            return chance.choice(leaves)
        if chance.random() < 0.5:
            return [self._value(depth + 1) for _ in range(chance.randrange(4))]
        keys = ["role", "content", "type", "text", "function", "name", "arguments", "tool_calls", "id", "parameters"]
        return {key: self._value(depth + 1) for key in chance.sample(keys, 4)}


def _parts(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


async def send_all(port: int, requests: Iterator[tuple[bytes, int]]) -> Counter[int]:
    """Send the requests; return how often each status came, 0 for a connection that the client left."""
    statuses = Counter[int]()

    async def send_next() -> None:
        for raw, leaves_after in requests:
            async with asyncio.timeout(DEADLINE_S):
                statuses[await _send(port, raw, leaves_after)] += 1

    await asyncio.gather(*(send_next() for _ in range(CONCURRENT)))
    return statuses


async def _send(port: int, raw: bytes, leaves_after: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw if leaves_after < 0 else raw[:leaves_after])
        await writer.drain()
        if leaves_after >= 0:
            return 0
        answer = await reader.read()
    except ConnectionError:
        # The gateway refused the request before it had read it.
        return 0
    finally:
        writer.close()
    head = answer.partition(b"\r\n")[0]
    assert head.startswith(b"HTTP/1.1 "), (raw[:300], answer[:300])
    return int(head.split()[1])


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hostile_requests_cause_no_defect(
    start_gateway: Callable[..., RunningGateway], upstream: str, count: int
) -> None:
    gateway = start_gateway(upstream=upstream, max_body_bytes=4 * 2**20, bodies_bytes=16 * 2**20)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    hostile = Hostile(37)
    port = int(gateway.url.rpartition(":")[2])
    statuses = asyncio.run(send_all(port, (hostile.request() for _ in range(count))))
    assert sum(statuses.values()) == count
    assert not {500, 502} & set(statuses), statuses
    assert statuses[400] > count / 4
    assert statuses[200] > count / 100
    assert statuses[0] > count / 10
    wait_until(lambda: gateway.health()["running_requests"] == 0)
    # A connection that a client left is noticed by its next read.
    wait_until(lambda: not gateway.gateway._bodies.used_bytes)
    assert "defects_total" not in gateway.gateway.metrics.render().replace("# ", "#").split("\n#")[0]
    assert gateway.chat().status_code == 200
    assert gateway.health()["held_requests"] == 0

"""A scripted engine: vLLM's chat API without a model, on raw asyncio.

    python benchmarks/serving/engine.py [DELAY_S]

It prints its port. A response has 256 prompt ids and 64 tokens; a stream has 66 events. With ``DELAY_S`` an event
leaves each ``DELAY_S`` seconds; without, the whole stream is one write.
"""

import asyncio
import json
import sys
from typing import Any, Final

PROMPT_IDS: Final = list(range(256))
TOKEN_IDS: Final = list(range(1000, 1064))
_HEAD: Final = {"created": 1, "model": "scripted"}


def _entry(token_id: int) -> dict[str, Any]:
    return {"token": "tok ", "logprob": -0.125 - token_id / 10_000, "bytes": [116, 111, 107, 32], "top_logprobs": []}


def _chunk(document: dict[str, Any]) -> bytes:
    data = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream_chunks(response_id: str) -> list[bytes]:
    """Return the chunks of a stream's body, HTTP framing included: one for each event."""
    head = {"id": response_id, "object": "chat.completion.chunk", **_HEAD}
    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    events = [{**head, "choices": [first], "prompt_token_ids": PROMPT_IDS}]
    for token_id in TOKEN_IDS:
        choice = {
            "index": 0,
            "delta": {"content": "tok "},
            "logprobs": {"content": [_entry(token_id)]},
            "finish_reason": "stop" if token_id == TOKEN_IDS[-1] else None,
            "token_ids": [token_id],
        }
        events.append({**head, "choices": [choice]})
    done = b"data: [DONE]\n\n"
    return [*map(_chunk, events), f"{len(done):x}\r\n".encode() + done + b"\r\n0\r\n\r\n"]


def whole_body(response_id: str) -> bytes:
    """Return the body of a whole response."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "tok " * len(TOKEN_IDS)},
        "logprobs": {"content": [_entry(token_id) for token_id in TOKEN_IDS]},
        "finish_reason": "stop",
        "token_ids": TOKEN_IDS,
    }
    usage = {"prompt_tokens": len(PROMPT_IDS), "completion_tokens": len(TOKEN_IDS), "total_tokens": 320}
    document = {"id": response_id, "object": "chat.completion", **_HEAD, "choices": [choice], "usage": usage}
    return json.dumps({**document, "prompt_token_ids": PROMPT_IDS}, separators=(",", ":")).encode()


_PLACEHOLDER: Final = "chatcmpl-00000000"
_STREAM: Final = stream_chunks(_PLACEHOLDER)
_WHOLE: Final = whole_body(_PLACEHOLDER)
_MODELS: Final = (
    b'{"object":"list","data":[{"id":"scripted","object":"model","root":"/nonexistent","max_model_len":4096}]}'
)
_STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Engine:
    """Answers requests.

    Args:
        delay_s: Time between two events of a stream.
    """

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                path = head.split(b" ")[1]
                await self._answer(path, body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path == b"/v1/models":
            writer.write(_with_length(_MODELS))
        elif path != b"/v1/chat/completions":
            writer.write(_with_length(b"{}", b"200 OK" if path == b"/health" else b"404 Not Found"))
        else:
            self._count += 1
            identity = f"chatcmpl-{self._count:08d}".encode()
            if json.loads(body).get("stream"):
                await self._stream(identity, writer)
            else:
                writer.write(_with_length(_WHOLE.replace(_PLACEHOLDER.encode(), identity)))

    async def _stream(self, identity: bytes, writer: asyncio.StreamWriter) -> None:
        chunks = [chunk.replace(_PLACEHOLDER.encode(), identity) for chunk in _STREAM]
        if not self._delay_s:
            writer.write(_STREAM_HEAD + b"".join(chunks))
            return
        writer.write(_STREAM_HEAD)
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        for chunk in chunks:
            writer.write(chunk)
            next_s += self._delay_s
            await asyncio.sleep(max(0.0, next_s - loop.time()))


def _with_length(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def main() -> None:
    """Serve until the process ends."""
    engine = Engine(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())

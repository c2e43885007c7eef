"""The Unix socket between gateway and vLLM."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.gateway.client.connection import EngineConnectionError
from spanloop.gateway.client.engine_client import EngineClient
from spanloop.gateway.engine.unix_socket import EngineSocket


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi")
    await writer.drain()
    writer.close()


async def test_the_socket_is_in_a_folder_of_this_user_alone() -> None:
    first, second = EngineSocket(), EngineSocket()
    assert first.url != second.url
    assert first.path.parent.stat().st_mode & 0o777 == 0o700
    server = await asyncio.start_unix_server(answer, first.path)
    async with EngineClient() as client:
        assert (await client.get(f"{first.url}/health")).text == "hi"
        with pytest.raises(EngineConnectionError):
            await client.get(f"{second.url}/health")
        server.close()
        first.remove()
        with pytest.raises(EngineConnectionError):
            await client.request("POST", f"{first.url}/v1/chat/completions")
        with pytest.raises(EngineConnectionError):
            await client.get("http://127.0.0.1:9/health")
    second.remove()
    assert not first.path.parent.exists()
    assert not second.path.parent.exists()


def test_a_path_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 100)))
    with pytest.raises(ConfigurationError, match="has more than 107 bytes") as refused:
        EngineSocket()
    assert refused.value.next_step == "Set TMPDIR to a folder with a shorter path, such as /tmp."

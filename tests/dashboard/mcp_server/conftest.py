"""A running MCP server's parts over the seeded or the generated store, and a client of the official SDK."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import httpx2
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import McpSettings
from spanloop.foundation.telemetry.listening import listen
from spanloop.foundation.telemetry.threaded_server import serving_in_thread
from spanloop.mcp_server.service import PATH, McpService

from ..client.conftest import seeded

__all__ = ["Connect", "Reply", "ask", "seeded"]

Connect: TypeAlias = Callable[[str], AbstractAsyncContextManager[Client]]
"""Connects with an API key; an empty one sends none."""


class Reply(str):
    """The text of a reply."""

    __slots__ = ("is_error",)
    is_error: bool


async def ask(client: Client, tool: str, **arguments: object) -> Reply:
    """Call a tool and return its text."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    text = Reply(content.text)
    text.is_error = bool(result.is_error)
    return text


@pytest.fixture
def settings() -> McpSettings:
    """The server's settings; a test may have its own."""
    return McpSettings(port=0)


@pytest.fixture
def service(data_dir: DataDir, settings: McpSettings) -> Iterator[McpService]:
    """The server's parts over the store of the environment."""
    service = McpService(settings, data_dir)
    yield service
    service.clients.close()


@pytest.fixture
def url(service: McpService) -> Iterator[str]:
    """The address of a server that listens."""
    _, app = service.application()
    listener = listen("MCP server", "127.0.0.1", 0, "--port")
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None, access_log=False))
    with listener, serving_in_thread(server, listener, name="mcp"):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def connect(url: str) -> Connect:
    """Connect to the server over HTTP."""

    @asynccontextmanager
    async def connecting(secret: str) -> AsyncGenerator[Client]:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(f"{url}{PATH}", http_client=http)) as client,
        ):
            yield client

    return connecting

"""Twenty questions through the official SDK's client, over HTTP and over standard input, against plain SQL."""

import os
import sys

import pytest
from asking.questions import QUESTIONS, World, ask_tables, parse_reply, tool_arguments
from mcp import Client, StdioServerParameters

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from .conftest import Connect, ask


async def check(client: Client, world: World, address: Address) -> None:
    with Store(address) as store:
        for question in QUESTIONS:
            reply = await ask(client, question.tool, **tool_arguments(question, world))
            assert not reply.is_error, (question.text, reply)
            assert parse_reply(question, reply) == ask_tables(store.connection, question, world), question.text


async def test_twenty_questions_over_http(
    generated: World, generated_address: tuple[Address, World], connect: Connect
) -> None:
    async with connect("") as client:
        await check(client, generated, generated_address[0])


async def test_twenty_questions_over_standard_input(
    generated: World, generated_address: tuple[Address, World], data_dir: DataDir
) -> None:
    arguments = ["-m", "spanloop.cli", "serve", "mcp", "--stdio", "--data-dir", str(data_dir.path)]
    environment = {**os.environ, CLICKHOUSE_URL_ENV: os.environ[CLICKHOUSE_URL_ENV]}
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    async with Client(server) as client:
        await check(client, generated, generated_address[0])


async def test_every_tool_says_that_it_reads_and_what_filters_there_are(generated: World, connect: Connect) -> None:
    del generated
    async with connect("") as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} >= {question.tool for question in QUESTIONS}
    for tool in tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        assert tool.description
        filters = tool.input_schema["properties"].get("filters")
        if filters is not None:
            assert {"time", "q", "outcome", "agent", "class", "reward"} <= {*filters["properties"]}
            assert "filters" not in tool.input_schema.get("required", [])


@pytest.mark.parametrize(
    "arguments", [{"filters": {"colour": "red"}}, {"sort": "colour"}, {"limit": 0}, {"after": "?"}]
)
async def test_a_question_that_cannot_be_read_is_an_error(
    arguments: dict[str, object], generated: World, connect: Connect
) -> None:
    del generated
    async with connect("") as client:
        reply = await ask(client, "find_episodes", **arguments)
    assert reply.is_error
    assert "Traceback" not in reply

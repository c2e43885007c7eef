"""The Claude Agent SDK, whose model calls are made by the program that it brings along."""

import asyncio

from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)
from driver import SYSTEM, TOOLS, drive

OFFERED = [f"mcp__cities__{name}" for name in TOOLS]


def offer(name):
    @tool(name, f"Tool {name}.", {"city": str})
    async def call(arguments):
        return {"content": [{"type": "text", "text": TOOLS[name](**arguments)}]}

    return call


def options(**more):
    settings = {"system_prompt": SYSTEM, "allowed_tools": OFFERED, "tools": [], "setting_sources": []}
    server = create_sdk_mcp_server("cities", tools=[offer(name) for name in TOOLS])
    return ClaudeAgentOptions(model="claude-sonnet-5", mcp_servers={"cities": server}, **settings | more)


def answer(message):
    if message.is_error:
        raise RuntimeError(message.result)
    return message.result


async def ask_async(question, **more):
    found = ""
    async for message in query(prompt=question, options=options(**more)):
        if isinstance(message, ResultMessage):
            found = answer(message)
    return found


def ask(question):
    return asyncio.run(ask_async(question))


async def stream(question):
    found = ""
    async with ClaudeSDKClient(options(include_partial_messages=True)) as client:
        await client.query(question)
        async for message in client.receive_response():
            if isinstance(message, ResultMessage):
                found = answer(message)
    return found


def delegate(question):
    researcher = AgentDefinition(description="Researches.", prompt="You research.", tools=OFFERED, model="inherit")
    more = {"system_prompt": "You coordinate.", "tools": ["Agent"], "allowed_tools": ["Agent", *OFFERED]}
    return asyncio.run(ask_async(question, agents={"researcher": researcher}, **more))


if __name__ == "__main__":
    drive(ask, ask_stream=lambda question: asyncio.run(stream(question)), ask_async=ask_async, delegate=delegate)

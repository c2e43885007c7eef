"""The Claude Agent SDK, whose model calls are made by the program that it brings along."""

import asyncio

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool
from driver import SYSTEM, TOOLS, drive


def offer(name):
    @tool(name, f"Tool {name}.", {"city": str})
    async def call(arguments):
        return {"content": [{"type": "text", "text": TOOLS[name](**arguments)}]}

    return call


async def ask_async(question):
    server = create_sdk_mcp_server("cities", tools=[offer(name) for name in TOOLS])
    options = ClaudeAgentOptions(
        model="claude-sonnet-5",
        system_prompt=SYSTEM,
        mcp_servers={"cities": server},
        allowed_tools=[f"mcp__cities__{name}" for name in TOOLS],
        tools=[],
        setting_sources=[],
    )
    answer = ""
    async for message in query(prompt=question, options=options):
        if isinstance(message, ResultMessage):
            if message.is_error:
                raise RuntimeError(message.result)
            answer = message.result
    return answer


def ask(question):
    return asyncio.run(ask_async(question))


if __name__ == "__main__":
    drive(ask, ask_async=ask_async)

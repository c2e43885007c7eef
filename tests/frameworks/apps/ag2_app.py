"""AG2 1.0."""

import asyncio

from ag2 import Agent
from ag2.config import OpenAIConfig
from driver import BASE_URL, SYSTEM, TOOLS, drive

tools = list(TOOLS.values())


def agent(name, prompt, offered, *, streams=False):
    config = OpenAIConfig(model="gpt-4o", base_url=f"{BASE_URL}/v1", api_key="none", streaming=streams)
    return Agent(name, prompt=prompt, config=config, tools=offered)


async def ask_async(question):
    return (await agent("reporter", SYSTEM, tools).ask(question)).body


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    async def run():
        return (await agent("reporter", SYSTEM, tools, streams=True).ask(question)).body

    return asyncio.run(run())


def delegate(question):
    async def run():
        researcher = agent("researcher", "You research.", tools).as_tool(description="Asks.", name="ask_researcher")
        return (await agent("coordinator", "You coordinate.", [researcher]).ask(question)).body

    return asyncio.run(run())


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate)

"""Microsoft Agent Framework."""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient
from driver import BASE_URL, SYSTEM, TOOLS, drive

tools = list(TOOLS.values())


def agent(name, instructions, offered):
    client = OpenAIChatCompletionClient(model="gpt-4o", base_url=f"{BASE_URL}/v1", api_key="none")
    return Agent(client=client, name=name, instructions=instructions, tools=offered)


async def ask_async(question):
    return (await agent("reporter", SYSTEM, tools).run(question)).text


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    async def run():
        return "".join([update.text async for update in agent("reporter", SYSTEM, tools).run(question, stream=True)])

    return asyncio.run(run())


def delegate(question):
    async def run():
        researcher = agent("researcher", "You research.", tools).as_tool(name="ask_researcher", description="Asks.")
        return (await agent("coordinator", "You coordinate.", [researcher]).run(question)).text

    return asyncio.run(run())


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate)

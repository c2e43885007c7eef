"""Semantic Kernel's chat completion agents."""

import asyncio

from driver import BASE_URL, SYSTEM, TOOLS, drive
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class Cities:
    @kernel_function(name="get_weather", description="Get the weather of a city.")
    def get_weather(self, city: str) -> str:
        return TOOLS["get_weather"](city)

    @kernel_function(name="get_population", description="Get the population of a city.")
    def get_population(self, city: str) -> str:
        return TOOLS["get_population"](city)


def agent(name, instructions, plugins):
    client = AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key="none")
    service = OpenAIChatCompletion(ai_model_id="gpt-4o", async_client=client)
    return ChatCompletionAgent(service=service, name=name, instructions=instructions, plugins=plugins)


async def ask_async(question):
    return str(await agent("reporter", SYSTEM, [Cities()]).get_response(messages=question))


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    async def run():
        stream = agent("reporter", SYSTEM, [Cities()]).invoke_stream(messages=question)
        return "".join([str(chunk.message) async for chunk in stream])

    return asyncio.run(run())


def delegate(question):
    async def run():
        researcher = agent("researcher", "You research.", [Cities()])
        return str(await agent("coordinator", "You coordinate.", [researcher]).get_response(messages=question))

    return asyncio.run(run())


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate)

"""openai-agents, over the Responses API or, with MATRIX_API=chat, over chat completions."""

import asyncio
import os

from agents import Agent, Runner, function_tool, set_default_openai_api, set_default_openai_client
from driver import BASE_URL, CLOSING, SYSTEM, TOOLS, drive
from openai import AsyncOpenAI
from pydantic import BaseModel

set_default_openai_client(AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key="none", default_headers=CLOSING))
set_default_openai_api(os.environ.get("MATRIX_API", "responses"))
tools = [function_tool(function) for function in TOOLS.values()]
agent = Agent(name="reporter", model="gpt-4o", instructions=SYSTEM, tools=tools)
researcher = Agent(name="researcher", model="gpt-4o", instructions="You research.", tools=tools)
coordinator = Agent(name="coordinator", model="gpt-4o", instructions="You coordinate.", handoffs=[researcher])


async def ask_async(question):
    return (await Runner.run(agent, question)).final_output


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    async def run():
        result = Runner.run_streamed(agent, question)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return asyncio.run(run())


def delegate(question):
    return Runner.run_sync(coordinator, question).final_output


class Report(BaseModel):
    city: str
    degrees: int


def ask_schema(question):
    reporting = Agent(name="reporter", model="gpt-4o", output_type=Report)
    return Runner.run_sync(reporting, question).final_output.model_dump()


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate, ask_schema=ask_schema)

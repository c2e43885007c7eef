"""Google's Agent Development Kit."""

import asyncio

from driver import SYSTEM, TOOLS, drive
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.plugins import ReflectAndRetryToolPlugin
from google.adk.runners import InMemoryRunner
from google.genai import types

tools = list(TOOLS.values())


async def run(agent, question, mode=StreamingMode.NONE):
    runner = InMemoryRunner(agent=agent, app_name="cities", plugins=[ReflectAndRetryToolPlugin(max_retries=3)])
    session = await runner.session_service.create_session(app_name="cities", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text=question)])
    answer = ""
    async for event in runner.run_async(
        user_id="user", session_id=session.id, new_message=message, run_config=RunConfig(streaming_mode=mode)
    ):
        if event.error_message:
            raise RuntimeError(event.error_message)
        if event.is_final_response() and event.content and event.content.parts:
            answer = event.content.parts[0].text
    await runner.close()
    return answer


def reporter():
    return LlmAgent(name="reporter", model="gemini-3-pro", instruction=SYSTEM, tools=tools)


async def ask_async(question):
    return await run(reporter(), question)


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    return asyncio.run(run(reporter(), question, StreamingMode.SSE))


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async)

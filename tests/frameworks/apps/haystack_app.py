"""Haystack's agent."""

from driver import BASE_URL, SYSTEM, TOOLS, drive
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

tools = [create_tool_from_function(function) for function in TOOLS.values()]


def agent(offered=tools, system=SYSTEM, **settings):
    generator = OpenAIChatGenerator(
        model="gpt-4o", api_base_url=f"{BASE_URL}/v1", api_key=Secret.from_token("none"), **settings
    )
    return Agent(chat_generator=generator, tools=offered, system_prompt=system)


def ask(question):
    return agent().run(messages=[ChatMessage.from_user(question)])["last_message"].text


def ask_stream(question):
    chunks = []
    streaming = agent(streaming_callback=chunks.append)
    return streaming.run(messages=[ChatMessage.from_user(question)])["last_message"].text


async def ask_async(question):
    return (await agent().run_async(messages=[ChatMessage.from_user(question)]))["last_message"].text


def ask_researcher(request: str) -> str:
    """Ask the researcher."""
    messages = [ChatMessage.from_user(request)]
    return agent(system="You research.").run(messages=messages)["last_message"].text


def delegate(question):
    coordinator = agent(offered=[create_tool_from_function(ask_researcher)], system="You coordinate.")
    return coordinator.run(messages=[ChatMessage.from_user(question)])["last_message"].text


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate)

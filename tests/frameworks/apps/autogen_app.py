"""AutoGen's AgentChat."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import Swarm
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient
from driver import BASE_URL, SYSTEM, TOOLS, drive
from pydantic import BaseModel

INFO = ModelInfo(vision=False, function_calling=True, json_output=True, family="gpt-4o", structured_output=True)


def client():
    return OpenAIChatCompletionClient(model="gpt-4o", base_url=f"{BASE_URL}/v1", api_key="none", model_info=INFO)


def reporter(*, streams=False):
    return AssistantAgent(
        "reporter",
        client(),
        tools=list(TOOLS.values()),
        system_message=SYSTEM,
        max_tool_iterations=8,
        model_client_stream=streams,
    )


async def ask_async(question):
    return (await reporter().run(task=question)).messages[-1].to_text()


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    async def run():
        return [event async for event in reporter(streams=True).run_stream(task=question)][-1].messages[-1].to_text()

    return asyncio.run(run())


def delegate(question):
    async def run():
        coordinator = AssistantAgent("coordinator", client(), handoffs=["researcher"], system_message="You coordinate.")
        researcher = AssistantAgent(
            "researcher",
            client(),
            tools=list(TOOLS.values()),
            system_message="You research.",
            max_tool_iterations=8,
        )
        team = Swarm([coordinator, researcher], termination_condition=TextMentionTermination("Done with"))
        return (await team.run(task=question)).messages[-1].to_text()

    return asyncio.run(run())


class Report(BaseModel):
    city: str
    degrees: int


def ask_schema(question):
    reporting = AssistantAgent("reporter", client(), output_content_type=Report)
    return asyncio.run(reporting.run(task=question)).messages[-1].content.model_dump()


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate, ask_schema=ask_schema)

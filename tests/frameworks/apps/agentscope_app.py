"""AgentScope 2."""

import asyncio

from agentscope.agent import Agent
from agentscope.credential import OpenAICredential
from agentscope.message import UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionContext, PermissionMode
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, Toolkit
from driver import BASE_URL, SYSTEM, TOOLS, drive
from pydantic import BaseModel

tools = list(TOOLS.values())


def agent(name, prompt, functions, *, streams=False):
    credential = OpenAICredential(api_key="none", base_url=f"{BASE_URL}/v1")
    return Agent(
        name=name,
        system_prompt=prompt,
        model=OpenAIChatModel(credential=credential, model="gpt-4o", stream=streams, max_retries=0),
        toolkit=Toolkit(tools=[FunctionTool(function) for function in functions]),
        state=AgentState(permission_context=PermissionContext(mode=PermissionMode.BYPASS)),
    )


async def ask_async(question):
    return (await agent("reporter", SYSTEM, tools).reply(UserMsg("user", question))).get_text_content()


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    async def run():
        streaming = agent("reporter", SYSTEM, tools, streams=True)
        return (await streaming.reply(UserMsg("user", question))).get_text_content()

    return asyncio.run(run())


async def ask_researcher(request: str) -> str:
    """Ask the researcher.

    Args:
        request: What to ask.
    """
    return (await agent("researcher", "You research.", tools).reply(UserMsg("user", request))).get_text_content()


def delegate(question):
    async def run():
        coordinator = agent("coordinator", "You coordinate.", [ask_researcher])
        return (await coordinator.reply(UserMsg("user", question))).get_text_content()

    return asyncio.run(run())


class Report(BaseModel):
    city: str
    degrees: int


def ask_schema(question):
    async def run():
        reply = await agent("reporter", SYSTEM, []).reply(UserMsg("user", question), structured_schema=Report)
        return reply.structured_output

    return asyncio.run(run())


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate, ask_schema=ask_schema)

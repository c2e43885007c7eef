"""AgentScope 1."""

import asyncio

from agentscope.agent import ReActAgent
from agentscope.formatter import OpenAIChatFormatter
from agentscope.memory import InMemoryMemory
from agentscope.message import Msg, TextBlock
from agentscope.model import OpenAIChatModel
from agentscope.tool import Toolkit, ToolResponse
from driver import BASE_URL, SYSTEM, TOOLS, drive


def response(text):
    return ToolResponse(content=[TextBlock(type="text", text=text)])


def get_weather(city: str) -> ToolResponse:
    """Get the weather of a city.

    Args:
        city (`str`): The name of the city.
    """
    return response(TOOLS["get_weather"](city))


async def get_population(city: str) -> ToolResponse:
    """Get the population of a city.

    Args:
        city (`str`): The name of the city.
    """
    return response(TOOLS["get_population"](city))


def agent(name, prompt, functions, *, streams=False):
    toolkit = Toolkit()
    for function in functions:
        toolkit.register_tool_function(function)
    made = ReActAgent(
        name=name,
        sys_prompt=prompt,
        model=OpenAIChatModel("gpt-4o", "none", stream=streams, client_kwargs={"base_url": f"{BASE_URL}/v1"}),
        formatter=OpenAIChatFormatter(),
        toolkit=toolkit,
        memory=InMemoryMemory(),
        parallel_tool_calls=True,
    )
    made.set_console_output_enabled(False)
    return made


TWO = (get_weather, get_population)


async def ask_async(question, *, name="reporter", prompt=SYSTEM, functions=TWO, streams=False):
    reply = await agent(name, prompt, functions, streams=streams)(Msg("user", question, "user"))
    return reply.get_text_content()


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    return asyncio.run(ask_async(question, streams=True))


async def ask_researcher(request: str) -> ToolResponse:
    """Ask the researcher.

    Args:
        request (`str`): What to ask.
    """
    return response(await ask_async(request, name="researcher", prompt="You research."))


def delegate(question):
    return asyncio.run(ask_async(question, name="coordinator", prompt="You coordinate.", functions=(ask_researcher,)))


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate)

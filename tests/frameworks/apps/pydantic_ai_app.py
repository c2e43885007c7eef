"""Pydantic AI."""

from driver import BASE_URL, CLOSING, FORM, SYSTEM, TOOLS, drive
from openai import AsyncOpenAI
from pydantic_ai import Agent, ModelRetry, NativeOutput, StructuredDict
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

client = AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key="none", default_headers=CLOSING)
model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    try:
        return TOOLS["get_weather"](city)
    except ValueError as error:
        raise ModelRetry(str(error)) from error


tools = [get_weather, TOOLS["get_population"]]
agent = Agent(model, instructions=SYSTEM, tools=tools, name="reporter")
researcher = Agent(model, instructions="You research.", tools=tools, name="researcher")
coordinator = Agent(model, instructions="You coordinate.", name="coordinator")


@coordinator.tool_plain
async def ask_researcher(request: str) -> str:
    """Ask the researcher."""
    return (await researcher.run(request)).output


def ask(question):
    return agent.run_sync(question).output


def ask_stream(question):
    result = agent.run_stream_sync(question)
    return result.get_output()


async def ask_async(question):
    return (await agent.run(question)).output


def delegate(question):
    return coordinator.run_sync(question).output


def ask_schema(question):
    return Agent(model, output_type=NativeOutput(StructuredDict(FORM, name="report"))).run_sync(question).output


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate, ask_schema=ask_schema)

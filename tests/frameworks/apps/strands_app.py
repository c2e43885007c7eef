"""Strands Agents."""

from driver import BASE_URL, SYSTEM, TOOLS, drive
from strands import Agent, tool
from strands.models.openai import OpenAIModel

tools = [tool(function) for function in TOOLS.values()]


def agent(name, system, offered):
    arguments = {"base_url": f"{BASE_URL}/v1", "api_key": "none"}
    model = OpenAIModel(client_args=arguments, model_id="gpt-4o")
    return Agent(name=name, model=model, system_prompt=system, tools=offered, callback_handler=None)


def ask(question):
    return str(agent("reporter", SYSTEM, tools)(question)).strip()


async def ask_async(question):
    return str(await agent("reporter", SYSTEM, tools).invoke_async(question)).strip()


def ask_stream(question):
    import asyncio

    async def run():
        events = [event async for event in agent("reporter", SYSTEM, tools).stream_async(question)]
        return str(events[-1]["result"]).strip()

    return asyncio.run(run())


@tool
def ask_researcher(request: str) -> str:
    """Ask the researcher."""
    return str(agent("researcher", "You research.", tools)(request)).strip()


def delegate(question):
    return str(agent("coordinator", "You coordinate.", [ask_researcher])(question)).strip()


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate)

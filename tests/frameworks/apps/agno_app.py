"""Agno."""

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.team import Team
from driver import BASE_URL, SYSTEM, TOOLS, drive

model = OpenAIChat(id="gpt-4o", base_url=f"{BASE_URL}/v1", api_key="none")
tools = list(TOOLS.values())


def reporter():
    return Agent(model=model, instructions=SYSTEM, tools=tools, name="reporter")


def check(run):
    if "ERROR" in str(run.status).upper():
        raise RuntimeError(run.content)
    return run.content


def ask(question):
    return check(reporter().run(question))


def ask_stream(question):
    return "".join(
        str(event.content or "") for event in reporter().run(question, stream=True) if hasattr(event, "content")
    )


async def ask_async(question):
    return check(await reporter().arun(question))


def delegate(question):
    researcher = Agent(id="researcher", name="researcher", model=model, instructions="You research.", tools=tools)
    return check(Team(name="coordinator", model=model, members=[researcher], mode="coordinate").run(question))


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate)

"""CrewAI."""

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from driver import BASE_URL, TOOLS, drive

tools = [tool(name)(function) for name, function in TOOLS.items()]


def crew(question, *, streams=False):
    llm = LLM(model="openai/gpt-4o", base_url=f"{BASE_URL}/v1", api_key="none", stream=streams)
    agent = Agent(role="reporter", goal="Report", backstory="You use tools.", llm=llm, tools=tools, max_retry_limit=0)
    return Crew(agents=[agent], tasks=[Task(description=question, expected_output="a sentence", agent=agent)])


def ask(question):
    return crew(question).kickoff().raw


def ask_stream(question):
    return crew(question, streams=True).kickoff().raw


async def ask_async(question):
    return (await crew(question).akickoff()).raw


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async)

"""smolagents' tool-calling agent."""

from driver import BASE_URL, TOOLS, drive
from smolagents import OpenAIModel, ToolCallingAgent, tool

model = OpenAIModel(model_id="gpt-4o", api_base=f"{BASE_URL}/v1", api_key="none")
tools = [tool(function) for function in TOOLS.values()]


def ask(question):
    return ToolCallingAgent(tools=tools, model=model, verbosity_level=0).run(question)


def ask_stream(question):
    agent = ToolCallingAgent(tools=tools, model=model, verbosity_level=0, stream_outputs=True)
    return list(agent.run(question, stream=True))[-1].output


def delegate(question):
    researcher = ToolCallingAgent(
        tools=tools, model=model, name="researcher", description="Researches the weather.", verbosity_level=0
    )
    return ToolCallingAgent(tools=[], model=model, managed_agents=[researcher], verbosity_level=0).run(question)


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, delegate=delegate)

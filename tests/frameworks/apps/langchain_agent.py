"""LangChain's `create_agent`."""

from driver import BASE_URL, FORM, SYSTEM, TOOLS, drive
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="gpt-4o", base_url=f"{BASE_URL}/v1", api_key="none")


@wrap_tool_call
def tell_errors(request, handler):
    try:
        return handler(request)
    except Exception as error:
        return ToolMessage(f"Error: {error!r}", tool_call_id=request.tool_call["id"], status="error")


@wrap_tool_call
async def tell_errors_async(request, handler):
    try:
        return await handler(request)
    except Exception as error:
        return ToolMessage(f"Error: {error!r}", tool_call_id=request.tool_call["id"], status="error")


tools = [tool(function) for function in TOOLS.values()]
agent = create_agent(model, tools, system_prompt=SYSTEM, middleware=[tell_errors])
asynchronous = create_agent(model, tools, system_prompt=SYSTEM, middleware=[tell_errors_async])
researcher = create_agent(model, tools, system_prompt="You research.", name="researcher", middleware=[tell_errors])


@tool
def ask_researcher(request: str) -> str:
    """Ask the researcher."""
    return researcher.invoke({"messages": [("user", request)]})["messages"][-1].text


coordinator = create_agent(model, [ask_researcher], system_prompt="You coordinate.", name="coordinator")


def ask(question):
    return agent.invoke({"messages": [("user", question)]})["messages"][-1].text


def ask_stream(question):
    texts = [chunk.text for chunk, _ in agent.stream({"messages": [("user", question)]}, stream_mode="messages")]
    return "".join(texts)


async def ask_async(question):
    return (await asynchronous.ainvoke({"messages": [("user", question)]}))["messages"][-1].text


def delegate(question):
    return coordinator.invoke({"messages": [("user", question)]})["messages"][-1].text


def ask_schema(question):
    return model.with_structured_output(FORM | {"title": "report"}, method="json_schema").invoke(question)


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate, ask_schema=ask_schema)

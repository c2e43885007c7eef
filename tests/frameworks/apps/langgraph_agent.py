"""A LangGraph state graph of a model node and a tool node."""

from driver import BASE_URL, SYSTEM, TOOLS, drive
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

model = ChatOpenAI(model="gpt-4o", base_url=f"{BASE_URL}/v1", api_key="none")


def build(tools, system, name):
    bound = model.bind_tools(tools)

    def call_model(state: MessagesState):
        return {"messages": [bound.invoke([SystemMessage(system), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(name=name)


tools = [tool(function) for function in TOOLS.values()]
agent = build(tools, SYSTEM, "agent")
researcher = build(tools, "You research.", "researcher")


@tool
def ask_researcher(request: str) -> str:
    """Ask the researcher."""
    return researcher.invoke({"messages": [("user", request)]})["messages"][-1].text


coordinator = build([ask_researcher], "You coordinate.", "coordinator")


def ask(question):
    return agent.invoke({"messages": [("user", question)]})["messages"][-1].text


def ask_stream(question):
    texts = [chunk.text for chunk, _ in agent.stream({"messages": [("user", question)]}, stream_mode="messages")]
    return "".join(texts)


async def ask_async(question):
    return (await agent.ainvoke({"messages": [("user", question)]}))["messages"][-1].text


def delegate(question):
    return coordinator.invoke({"messages": [("user", question)]})["messages"][-1].text


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate)

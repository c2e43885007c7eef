"""LlamaIndex's function agents."""

import asyncio

from driver import BASE_URL, SYSTEM, TOOLS, drive
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

model = OpenAILike(
    model="gpt-4o", api_base=f"{BASE_URL}/v1", api_key="none", is_chat_model=True, is_function_calling_model=True
)
tools = list(TOOLS.values())


def reporter(streaming):
    return FunctionAgent(name="reporter", tools=tools, llm=model, system_prompt=SYSTEM, streaming=streaming)


researcher = FunctionAgent(
    name="researcher", description="researches", tools=tools, llm=model, system_prompt="You research.", streaming=False
)
coordinator = FunctionAgent(
    name="coordinator",
    description="coordinates",
    tools=[],
    llm=model,
    system_prompt="You coordinate.",
    can_handoff_to=["researcher"],
    streaming=False,
)


async def ask_async(question):
    return await reporter(streaming=False).run(question)


def ask(question):
    return asyncio.run(ask_async(question))


def ask_stream(question):
    async def run():
        handler = reporter(streaming=True).run(question)
        async for _ in handler.stream_events():
            pass
        return await handler

    return asyncio.run(run())


def delegate(question):
    async def run():
        return await AgentWorkflow(agents=[coordinator, researcher], root_agent="coordinator").run(question)

    return asyncio.run(run())


class Report(BaseModel):
    city: str
    degrees: int


def ask_schema(question):
    return model.as_structured_llm(Report).complete(question).raw.model_dump()


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, delegate=delegate, ask_schema=ask_schema)

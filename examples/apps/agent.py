"""An agent on openai-agents that works in an office of apps: its tools are those of the environment.

    spanloop loop app.toml

`work` is called for each attempt; ``environment()`` is the office of the attempt, which judges it. The agent sends no
reward. ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` name the model.
"""

import asyncio
import os
from typing import Any, Final

from agents import Agent, AgentsException, FunctionTool, ModelSettings, RunContextWrapper, Runner, set_tracing_disabled
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from apps import INSTRUCTIONS
from openai import AsyncOpenAI

from spanloop.instrumentation import EnvironmentSession, environment

MAX_TURNS: Final = 8
MAX_TOKENS: Final = 64


def tools_of(office: EnvironmentSession) -> list[FunctionTool]:
    """Return the tools of an environment as tools of openai-agents."""
    turn = asyncio.Lock()  # a model may call several tools at once, and the office takes one call after another

    def made(function: dict[str, Any]) -> FunctionTool:
        async def use(_: RunContextWrapper[Any], arguments: str) -> str:
            async with turn:
                return (await asyncio.to_thread(office.step, function["name"], arguments)).text

        return FunctionTool(
            name=function["name"],
            description=function["description"],
            params_json_schema=function["parameters"],
            on_invoke_tool=use,
            strict_json_schema=False,
        )

    return [made(tool["function"]) for tool in office.tools]


async def work(task: dict[str, Any]) -> str:
    """Do the task of an attempt; return the agent's last words."""
    del task  # the office says what is asked
    set_tracing_disabled(disabled=True)
    model = OpenAIChatCompletionsModel(os.environ["OPENAI_MODEL"], AsyncOpenAI(max_retries=2))
    with environment() as office:
        agent = Agent[None](
            name="office worker",
            instructions=INSTRUCTIONS,
            model=model,
            model_settings=ModelSettings(temperature=0.8, max_tokens=MAX_TOKENS),
            tools=list(tools_of(office)),
            tool_use_behavior={"stop_at_tool_names": ["finish"]},
        )
        try:
            return str((await Runner.run(agent, office.text, max_turns=MAX_TURNS)).final_output)
        except AgentsException as error:  # it called no tool that exists, or did not end: the office judges that
            return f"{type(error).__name__}: {error}"

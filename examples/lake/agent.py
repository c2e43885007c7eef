"""A LangChain agent that walks over a frozen lake: read what lies around, name a direction, until the walk is over.

    spanloop loop app.toml

`walk` is called for each attempt; ``environment()`` is the lake of the attempt, which has begun. The lake judges the
attempt, so the agent sends no reward. ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` name the model.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
import os
import re
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

from spanloop.instrumentation import environment

MAX_TOKENS: Final = 4
"""Of a model call: one word."""
TEMPERATURE: Final = 0.8
OPENING: Final[list[AnyMessage]] = [
    SystemMessage("You walk over a frozen lake. Answer with left, down, right or up. Never walk into a hole."),
    HumanMessage("left wall, down ice, right hole, up wall. Goal: 2 down, 1 right."),
    AIMessage("down"),
    HumanMessage("left wall, down hole, right ice, up ice. Goal: 1 down, 1 right."),
    AIMessage("right"),
    HumanMessage("left ice, down goal, right wall, up hole. Goal: 1 down."),
    AIMessage("down"),
]
"""An example walk; small models do not answer with one word without it."""


def walk(task: dict[str, Any]) -> str:
    """Walk over the lake of an attempt; return the last observation."""
    del task  # the lake shows what the agent may know of it
    model = ChatOpenAI(
        model=os.environ["OPENAI_MODEL"], temperature=TEMPERATURE, max_completion_tokens=MAX_TOKENS, max_retries=2
    )
    with environment() as lake:
        messages: list[AnyMessage] = [*OPENING, HumanMessage(lake.text)]
        while not lake.done:
            reply = model.invoke(messages)
            answer = lake.step("act", {"action": direction(str(reply.content))})
            messages += [reply, HumanMessage(answer.text)]
        return lake.text


def direction(text: str) -> str:
    """Return the first word of an answer; the lake refuses one that is no direction."""
    match = re.search(r"[a-z]+", text.lower())
    return match[0] if match else ""

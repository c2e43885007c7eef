"""A bare loop on the OpenAI SDK that plays a village with one wolf, as a villager or as the wolf.

    spanloop loop app.toml

`play` is called for each attempt; ``environment()`` is the village of the attempt, which judges it. The agent sends no
reward. ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` name the model.
"""

import os
from typing import Any, Final

from openai import OpenAI

from spanloop.instrumentation import environment

MAX_TOKENS: Final = 8
"""Of a model call."""
TEMPERATURE: Final = 0.8


def _game(*turns: str) -> list[Any]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]


OPENING: Final[list[Any]] = [
    {"role": "system", "content": "You play a game. Write: ask NAME, vote NAME, or: say PLACE."},
    *_game(
        "You are Ida, a villager. Tom: I was at the inn. Sue: I was at the well. Who is the wolf?",
        "ask Tom",
        "Tom: I was at the mill.",
        "vote Tom",
    ),
    *_game(
        "You are Tom, the wolf. Sue: I was at the inn. Ida: I was at the mill. Where were you?",
        "say church",
        "Sue asks you: where were you?",
        "say church",
    ),
    *_game(
        "You are Sue, a villager. Ida: I was at the market. Tom: I was at the inn. Who is the wolf?",
        "ask Ida",
        "Ida: I was at the market.",
        "vote Tom",
    ),
]
"""Example games; small models do not keep to the form without them."""


def speak(client: OpenAI, model: str, messages: list[Any]) -> str:
    """Return the first line of what a model says."""
    reply = client.chat.completions.create(
        model=model, messages=messages, temperature=TEMPERATURE, max_tokens=MAX_TOKENS
    )
    return (reply.choices[0].message.content or "").strip().partition("\n")[0]


def play(task: dict[str, Any]) -> str:
    """Play the game of an attempt; return the last message of the agent."""
    del task  # the village tells what the player may know
    client, text = OpenAI(max_retries=2), ""
    with environment() as village:
        messages: list[Any] = [*OPENING, {"role": "user", "content": village.text}]
        while not village.done:
            text = speak(client, os.environ["OPENAI_MODEL"], messages)
            answer = village.say(text)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": answer.text}]
    return text

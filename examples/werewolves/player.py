"""A player's words: example games, and a call of the model. The agent and, in self-play, the other players use it."""

from typing import Any, Final

from openai import OpenAI

MAX_TOKENS: Final = 8
"""Longest answer of a model call."""
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

"""A bare loop on the OpenAI SDK that plays a village with one wolf, as a villager or as the wolf.

    spanloop loop app.toml

`play` is called for each attempt; ``environment()`` is the village of the attempt, which judges it. The agent sends no
reward. ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` name the model.
"""

import os
from typing import Any

from openai import OpenAI
from player import OPENING, speak

from spanloop.instrumentation import environment


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

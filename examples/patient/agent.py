"""A bare loop on the OpenAI SDK that treats a patient: ask, read the reply, answer.

    spanloop loop app.toml

`treat` is called for each attempt; ``environment()`` is the patient of the attempt, who judges it. The agent sends no
reward. ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` name the model.
"""

import os
from typing import Any, Final

from openai import OpenAI

from spanloop.instrumentation import environment

MAX_TOKENS: Final = 12
"""Of a model call."""
TEMPERATURE: Final = 0.8
SYSTEM: Final = "You are a doctor. Write: ask SYMPTOM, or: answer ILLNESS."
OPENING: Final[list[Any]] = [
    {"role": "system", "content": SYSTEM},
    {
        "role": "user",
        "content": "I have a sore throat. Handbook: with spots it is measles, without it is laryngitis.",
    },
    {"role": "assistant", "content": "ask spots"},
    {"role": "user", "content": "No."},
    {"role": "assistant", "content": "answer laryngitis"},
    {
        "role": "user",
        "content": "I have a stiff neck. Handbook: with nausea it is meningitis, without it is torticollis.",
    },
    {"role": "assistant", "content": "answer torticollis"},
]
"""Example conversations: one asks first, the other guesses. Small models do not keep to the form without them."""


def treat(task: dict[str, Any]) -> str:
    """Treat the patient of an attempt; return the last message of the agent."""
    del task  # the patient tells what the agent may know
    client, text = OpenAI(max_retries=2), ""
    with environment() as patient:
        messages: list[Any] = [*OPENING, {"role": "user", "content": patient.text}]
        while not patient.done:
            reply = client.chat.completions.create(
                model=os.environ["OPENAI_MODEL"], messages=messages, temperature=TEMPERATURE, max_tokens=MAX_TOKENS
            )
            text = (reply.choices[0].message.content or "").strip().partition("\n")[0]
            answer = patient.say(text)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": answer.text}]
    return text

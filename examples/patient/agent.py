"""A bare loop on the OpenAI SDK that treats a patient: ask, read the reply, answer.

    spanloop loop app.toml

`treat` is called for each attempt; ``environment()`` is the patient of the attempt, who judges it. The agent sends no
reward. ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` name the model.
"""

import os
from typing import Any, Final

from openai import OpenAI
from patient import complaint_text

from spanloop.instrumentation import environment

MAX_TOKENS: Final = 12
"""Of a model call."""
TEMPERATURE: Final = 0.8
SYSTEM: Final = "You are a doctor. Write: ask SYMPTOM, or: answer ILLNESS."
EXAMPLES: Final = (
    ("a sore throat", "spots", "measles", "laryngitis", "No."),
    ("a stiff neck", "nausea", "meningitis", "torticollis", "Yes."),
    ("red eyes", "pus", "conjunctivitis", "allergy", "No."),
)
"""Example conversations: complaint, symptom, illness with it and without it, and the patient's reply.

Small models do not keep to the form without them.
"""


def opening() -> list[Any]:
    """Return the messages before those of the patient."""
    messages: list[Any] = [{"role": "system", "content": SYSTEM}]
    for complaint, symptom, present, absent, reply in EXAMPLES:
        messages += [
            {"role": "user", "content": complaint_text(complaint, symptom, present, absent)},
            {"role": "assistant", "content": f"ask {symptom}"},
            {"role": "user", "content": reply},
            {"role": "assistant", "content": f"answer {present if reply == 'Yes.' else absent}"},
        ]
    return messages


def treat(task: dict[str, Any]) -> str:
    """Treat the patient of an attempt; return the last message of the agent."""
    del task  # the patient tells what the agent may know
    client, text = OpenAI(max_retries=2), ""
    with environment() as patient:
        messages: list[Any] = [*opening(), {"role": "user", "content": patient.text}]
        while not patient.done:
            reply = client.chat.completions.create(
                model=os.environ["OPENAI_MODEL"], messages=messages, temperature=TEMPERATURE, max_tokens=MAX_TOKENS
            )
            text = (reply.choices[0].message.content or "").strip().partition("\n")[0]
            answer = patient.say(text)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": answer.text}]
    return text

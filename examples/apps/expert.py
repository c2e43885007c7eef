"""An expert of the office, who knows what has to be written: its dialogs are the demonstrations.

Invariant: a demonstration has the instructions, tools and answers that the agent gets, so both are the same tokens.
"""

import json
from typing import Any, NamedTuple

from apps import INSTRUCTIONS, Apps

from spanloop.evaluation.environments import Action, tool_json


def demonstration(task: NamedTuple) -> dict[str, Any]:
    """Return the dialog of an attempt that does a task, in OpenAI's form for fine-tuning."""
    fields = task._asdict()
    office = Apps()
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": office.reset(fields, 0)},
    ]
    for number, (name, arguments) in enumerate(right_calls(fields)):
        answer = office.step(Action(name, arguments))
        identity, function = f"call_{number}", {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": identity, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": identity, "content": answer.observation})
    office.close()
    return {"messages": messages[:-1], "tools": [tool_json(tool) for tool in office.tools()]}


def right_calls(task: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that do a task: read the mail and the file that it names, write, and finish."""
    *_, (sender, _, mail) = task["rows"]["mail"]
    calls: list[tuple[str, dict[str, Any]]] = [("read_mail", {"sender": sender})]
    calls += [("read_file", {"name": name}) for name, _ in task["rows"]["files"] if name in mail]
    calls += [("pay", {"recipient": name, "amount": amount}) for name, amount in task["writes"].get("payments", ())]
    calls += [
        ("add_entry", {"day": day, "hour": hour, "title": title})
        for day, hour, title in task["writes"].get("calendar", ())
    ]
    calls += [("send_mail", {"recipient": name, "text": text}) for _, name, text in task["writes"].get("mail", ())]
    return [*calls, ("finish", {})]

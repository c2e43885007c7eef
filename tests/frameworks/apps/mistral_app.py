"""The Mistral SDK in a loop."""

import json

from driver import BASE_URL, SYSTEM, TOOLS, drive, schema
from mistralai.client import Mistral

OFFERED = [
    {"type": "function", "function": {"name": name, "description": tool.__doc__, "parameters": schema(name)}}
    for name, tool in TOOLS.items()
]
client = Mistral(api_key="none", server_url=BASE_URL)


def go_on(messages, message):
    messages.append(message)
    if not message.tool_calls:
        return message.content
    for call in message.tool_calls:
        arguments = call.function.arguments
        try:
            content = TOOLS[call.function.name](**(json.loads(arguments) if isinstance(arguments, str) else arguments))
        except Exception as error:
            content = f"Error: {error!r}"
        messages.append({"role": "tool", "name": call.function.name, "tool_call_id": call.id, "content": content})
    return None


def opening(question):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def ask(question):
    messages, answer = opening(question), None
    while answer is None:
        response = client.chat.complete(model="mistral-large-latest", messages=messages, tools=OFFERED)
        answer = go_on(messages, response.choices[0].message)
    return answer


async def ask_async(question):
    messages, answer = opening(question), None
    while answer is None:
        response = await client.chat.complete_async(model="mistral-large-latest", messages=messages, tools=OFFERED)
        answer = go_on(messages, response.choices[0].message)
    return answer


def ask_stream(question):
    messages, answer = opening(question), None
    while answer is None:
        calls, text = {}, ""
        with client.chat.stream(model="mistral-large-latest", messages=messages, tools=OFFERED) as stream:
            for event in stream:
                for choice in event.data.choices:
                    text += choice.delta.content or ""
                    for call in choice.delta.tool_calls or ():
                        known = calls.setdefault(call.index, {"id": call.id, "name": call.function.name, "text": ""})
                        known["text"] += call.function.arguments
        if not calls:
            return text
        functions = [{"id": c["id"], "function": {"name": c["name"], "arguments": c["text"]}} for c in calls.values()]
        messages.append({"role": "assistant", "content": text, "tool_calls": functions})
        for call in calls.values():
            try:
                content = TOOLS[call["name"]](**json.loads(call["text"]))
            except Exception as error:
                content = f"Error: {error!r}"
            messages.append({"role": "tool", "name": call["name"], "tool_call_id": call["id"], "content": content})
    return answer


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async)

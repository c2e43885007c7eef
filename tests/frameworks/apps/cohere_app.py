"""The Cohere SDK's v2 chat in a loop."""

import json

import cohere
from driver import SYSTEM, TOOLS, drive, schema

OFFERED = [
    {"type": "function", "function": {"name": name, "description": tool.__doc__, "parameters": schema(name)}}
    for name, tool in TOOLS.items()
]
client = cohere.ClientV2()


def go_on(messages, message):
    if not message.tool_calls:
        return message.content[0].text
    messages.append({"role": "assistant", "tool_calls": message.tool_calls})
    for call in message.tool_calls:
        try:
            content = TOOLS[call.function.name](**json.loads(call.function.arguments))
        except Exception as error:
            content = f"Error: {error!r}"
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    return None


def opening(question):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def ask(question):
    messages, answer = opening(question), None
    while answer is None:
        answer = go_on(messages, client.chat(model="command-a", messages=messages, tools=OFFERED).message)
    return answer


async def ask_async(question):
    messages, answer = opening(question), None
    async with cohere.AsyncClientV2() as asynchronous:
        while answer is None:
            response = await asynchronous.chat(model="command-a", messages=messages, tools=OFFERED)
            answer = go_on(messages, response.message)
    return answer


if __name__ == "__main__":
    drive(ask, ask_async=ask_async)

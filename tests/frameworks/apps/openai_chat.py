"""The OpenAI SDK's chat completions in a loop."""

import json

from driver import BASE_URL, FORM, SYSTEM, TOOLS, drive, schema
from openai import AsyncOpenAI, OpenAI

OFFERED = [
    {"type": "function", "function": {"name": name, "description": tool.__doc__, "parameters": schema(name)}}
    for name, tool in TOOLS.items()
]
client = OpenAI(base_url=f"{BASE_URL}/v1", api_key="none")


def run_tools(message):
    for call in message.tool_calls or ():
        try:
            content = TOOLS[call.function.name](**json.loads(call.function.arguments))
        except Exception as error:
            content = f"Error: {error!r}"
        yield {"role": "tool", "tool_call_id": call.id, "content": content}


def opening(question):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def ask(question):
    messages = opening(question)
    while True:
        message = client.chat.completions.create(model="gpt-4o", messages=messages, tools=OFFERED).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        messages += run_tools(message)


def ask_stream(question):
    messages = opening(question)
    while True:
        with client.chat.completions.stream(model="gpt-4o", messages=messages, tools=OFFERED) as stream:
            message = stream.get_final_completion().choices[0].message
        messages.append(message.model_dump(include={"role", "content", "tool_calls"}))
        if not message.tool_calls:
            return message.content
        messages += run_tools(message)


async def ask_async(question):
    messages = opening(question)
    async with AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key="none") as asynchronous:
        while True:
            answer = await asynchronous.chat.completions.create(model="gpt-4o", messages=messages, tools=OFFERED)
            message = answer.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                return message.content
            messages += run_tools(message)


def ask_schema(question):
    form = {"type": "json_schema", "json_schema": {"name": "report", "strict": True, "schema": FORM}}
    answer = client.chat.completions.create(model="gpt-4o", messages=opening(question), response_format=form)
    return json.loads(answer.choices[0].message.content)


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, ask_schema=ask_schema)

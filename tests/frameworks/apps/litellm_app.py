"""LiteLLM's completion in a loop."""

import json

import litellm
from driver import BASE_URL, FORM, SYSTEM, TOOLS, drive, schema

OFFERED = [
    {"type": "function", "function": {"name": name, "description": tool.__doc__, "parameters": schema(name)}}
    for name, tool in TOOLS.items()
]
SETTINGS = {"model": "openai/gpt-4o", "api_base": f"{BASE_URL}/v1", "api_key": "none", "tools": OFFERED}


def go_on(messages, message):
    messages.append(message.model_dump(include={"role", "content", "tool_calls"}))
    if not message.tool_calls:
        return message.content
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
        answer = go_on(messages, litellm.completion(messages=messages, **SETTINGS).choices[0].message)
    return answer


def ask_stream(question):
    messages, answer = opening(question), None
    while answer is None:
        chunks = list(litellm.completion(messages=messages, stream=True, **SETTINGS))
        answer = go_on(messages, litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message)
    return answer


async def ask_async(question):
    messages, answer = opening(question), None
    while answer is None:
        answer = go_on(messages, (await litellm.acompletion(messages=messages, **SETTINGS)).choices[0].message)
    return answer


def ask_schema(question):
    form = {"type": "json_schema", "json_schema": {"name": "report", "strict": True, "schema": FORM}}
    answer = litellm.completion(messages=opening(question), response_format=form, **SETTINGS)
    return json.loads(answer.choices[0].message.content)


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, ask_schema=ask_schema)

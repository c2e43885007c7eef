"""The Anthropic SDK in a loop."""

import json

from anthropic import Anthropic, AsyncAnthropic
from driver import FORM, SYSTEM, TOOLS, drive, schema

OFFERED = [{"name": name, "description": tool.__doc__, "input_schema": schema(name)} for name, tool in TOOLS.items()]
client = Anthropic()


def run_tools(message):
    for block in message.content:
        if block.type == "tool_use":
            try:
                content, failed = TOOLS[block.name](**block.input), False
            except Exception as error:
                content, failed = f"Error: {error!r}", True
            yield {"type": "tool_result", "tool_use_id": block.id, "content": content, "is_error": failed}


def request(messages):
    return {"model": "claude-sonnet-5", "max_tokens": 500, "system": SYSTEM, "messages": messages, "tools": OFFERED}


def go_on(messages, message):
    messages.append(
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
    )
    if results := list(run_tools(message)):
        messages.append({"role": "user", "content": results})
        return None
    return message.content[0].text


def ask(question):
    messages, answer = [{"role": "user", "content": question}], None
    while answer is None:
        answer = go_on(messages, client.messages.create(**request(messages)))
    return answer


def ask_stream(question):
    messages, answer = [{"role": "user", "content": question}], None
    while answer is None:
        with client.messages.stream(**request(messages)) as stream:
            message = stream.get_final_message()
        answer = go_on(messages, message)
    return answer


async def ask_async(question):
    messages, answer = [{"role": "user", "content": question}], None
    async with AsyncAnthropic() as asynchronous:
        while answer is None:
            answer = go_on(messages, await asynchronous.messages.create(**request(messages)))
    return answer


def ask_schema(question):
    message = client.messages.create(
        model="claude-sonnet-5",
        max_tokens=500,
        messages=[{"role": "user", "content": question}],
        output_config={"format": {"type": "json_schema", "schema": FORM}},
    )
    return json.loads(message.content[0].text)


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, ask_schema=ask_schema)

"""The OpenAI SDK's Responses API in a loop."""

import json

from driver import BASE_URL, FORM, SYSTEM, TOOLS, drive, schema
from openai import AsyncOpenAI, OpenAI

OFFERED = [
    {"type": "function", "name": name, "description": tool.__doc__, "parameters": schema(name)}
    for name, tool in TOOLS.items()
]
client = OpenAI(base_url=f"{BASE_URL}/v1", api_key="none")


def run_tools(response):
    for item in response.output:
        if item.type == "function_call":
            try:
                output = TOOLS[item.name](**json.loads(item.arguments))
            except Exception as error:
                output = f"Error: {error!r}"
            yield {"type": "function_call_output", "call_id": item.call_id, "output": output}


def ask(question):
    items = [{"role": "user", "content": question}]
    while True:
        response = client.responses.create(model="gpt-4o", instructions=SYSTEM, input=items, tools=OFFERED)
        items += response.output
        results = list(run_tools(response))
        if not results:
            return response.output_text
        items += results


def ask_stream(question):
    items = [{"role": "user", "content": question}]
    while True:
        with client.responses.stream(model="gpt-4o", instructions=SYSTEM, input=items, tools=OFFERED) as stream:
            response = stream.get_final_response()
        items += [item.model_dump(exclude={"parsed_arguments", "parsed"}) for item in response.output]
        results = list(run_tools(response))
        if not results:
            return response.output_text
        items += results


async def ask_async(question):
    items = [{"role": "user", "content": question}]
    async with AsyncOpenAI(base_url=f"{BASE_URL}/v1", api_key="none") as asynchronous:
        while True:
            response = await asynchronous.responses.create(
                model="gpt-4o", instructions=SYSTEM, input=items, tools=OFFERED
            )
            items += response.output
            results = list(run_tools(response))
            if not results:
                return response.output_text
            items += results


def ask_schema(question):
    form = {"format": {"type": "json_schema", "name": "report", "strict": True, "schema": FORM}}
    return json.loads(client.responses.create(model="gpt-4o", input=question, text=form).output_text)


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async, ask_schema=ask_schema)

"""boto3's Bedrock Converse in a loop."""

import json

import boto3
from driver import SYSTEM, TOOLS, drive, schema

OFFERED = {
    "tools": [
        {"toolSpec": {"name": name, "description": tool.__doc__, "inputSchema": {"json": schema(name)}}}
        for name, tool in TOOLS.items()
    ]
}
client = boto3.client("bedrock-runtime")


def go_on(messages, message):
    messages.append(message)
    results = []
    for block in message["content"]:
        if use := block.get("toolUse"):
            try:
                content, status = TOOLS[use["name"]](**use["input"]), "success"
            except Exception as error:
                content, status = f"Error: {error!r}", "error"
            result = {"toolUseId": use["toolUseId"], "content": [{"text": content}], "status": status}
            results.append({"toolResult": result})
    if results:
        messages.append({"role": "user", "content": results})
        return None
    return message["content"][0]["text"]


def request(messages):
    return {
        "modelId": "amazon.nova-pro-v1:0",
        "messages": messages,
        "system": [{"text": SYSTEM}],
        "toolConfig": OFFERED,
    }


def ask(question):
    messages, answer = [{"role": "user", "content": [{"text": question}]}], None
    while answer is None:
        answer = go_on(messages, client.converse(**request(messages))["output"]["message"])
    return answer


def ask_stream(question):
    messages, answer = [{"role": "user", "content": [{"text": question}]}], None
    while answer is None:
        answer = go_on(messages, {"role": "assistant", "content": blocks(client.converse_stream(**request(messages)))})
    return answer


def blocks(response):
    uses, text = {}, ""
    for event in response["stream"]:
        if start := event.get("contentBlockStart"):
            uses[start["contentBlockIndex"]] = start["start"]["toolUse"] | {"input": ""}
        elif delta := event.get("contentBlockDelta"):
            if "text" in delta["delta"]:
                text += delta["delta"]["text"]
            else:
                uses[delta["contentBlockIndex"]]["input"] += delta["delta"]["toolUse"]["input"]
    return [{"toolUse": use | {"input": json.loads(use["input"])}} for use in uses.values()] or [{"text": text}]


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream)

"""Streams that an app takes from a raw response are recorded, and the app gets the same events."""

import json

from .support import App, FakeModel, Receiver, says

CHAT = """
import openai

raw = openai.OpenAI().chat.completions.with_raw_response.create(
    model="tiny", messages=[{"role": "user", "content": "hi"}], stream=True)
print(raw.headers["content-type"], "".join(chunk.choices[0].delta.content or "" for chunk in raw.parse()))
"""

RESPONSES = """
import asyncio, json, httpx, openai

message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "hello", "annotations": []}]}
response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "tiny", "status": "completed",
    "output": [message], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
event = {"type": "response.completed", "sequence_number": 0, "response": response}
body = f"event: response.completed\\ndata: {json.dumps(event)}\\n\\n"
answer = lambda request: httpx.Response(200, headers={"content-type": "text/event-stream"}, text=body)

async def main():
    client = openai.AsyncOpenAI(http_client=httpx.AsyncClient(transport=httpx.MockTransport(answer)))
    async with client.responses.with_streaming_response.create(model="tiny", input="hi", stream=True) as raw:
        print([event.type async for event in await raw.parse()])

asyncio.run(main())
"""


def test_a_chat_stream_of_a_raw_response_has_its_text_and_finish_reason(
    traced_app: App, receiver: Receiver, model: FakeModel
) -> None:
    model.script = (says("hello"),)
    ran = traced_app.run(CHAT)
    assert (ran.stdout.strip(), ran.stderr, ran.code) == ("text/event-stream hello", "", 0)
    (span,) = receiver.spans
    assert span.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert json.loads(span.attributes["gen_ai.output.messages"])[0]["parts"] == [{"type": "text", "content": "hello"}]


def test_a_stream_of_the_responses_api_is_recorded_once(traced_app: App, receiver: Receiver) -> None:
    ran = traced_app.run(RESPONSES)
    assert (ran.stdout.strip(), ran.stderr, ran.code) == ("['response.completed']", "", 0)
    (span,) = receiver.spans
    assert json.loads(span.attributes["gen_ai.input.messages"])[0]["parts"][0]["content"] == "hi"
    assert span.attributes["gen_ai.response.id"] == "resp_1"

"""The Google GenAI SDK in a loop."""

from driver import SYSTEM, TOOLS, drive, schema
from google import genai
from google.genai import types

FUNCTIONS = [{"name": name, "description": tool.__doc__, "parameters": schema(name)} for name, tool in TOOLS.items()]
CONFIG = types.GenerateContentConfig(
    system_instruction=SYSTEM,
    tools=[types.Tool(function_declarations=FUNCTIONS)],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)
client = genai.Client()


def run_tools(content):
    for part in content.parts:
        if call := part.function_call:
            try:
                response = {"result": TOOLS[call.name](**call.args)}
            except Exception as error:
                response = {"error": repr(error)}
            yield types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=response))


def go_on(contents, content):
    contents.append(content)
    if results := list(run_tools(content)):
        contents.append(types.Content(role="user", parts=results))
        return None
    return content.parts[0].text


def opening(question):
    return [types.Content(role="user", parts=[types.Part(text=question)])]


def ask(question):
    contents, answer = opening(question), None
    while answer is None:
        response = client.models.generate_content(model="gemini-3-pro", contents=contents, config=CONFIG)
        answer = go_on(contents, response.candidates[0].content)
    return answer


def ask_stream(question):
    contents, answer = opening(question), None
    while answer is None:
        chunks = list(client.models.generate_content_stream(model="gemini-3-pro", contents=contents, config=CONFIG))
        answer = go_on(contents, chunks[0].candidates[0].content)
    return answer


async def ask_async(question):
    contents, answer = opening(question), None
    while answer is None:
        response = await client.aio.models.generate_content(model="gemini-3-pro", contents=contents, config=CONFIG)
        answer = go_on(contents, response.candidates[0].content)
    return answer


if __name__ == "__main__":
    drive(ask, ask_stream=ask_stream, ask_async=ask_async)

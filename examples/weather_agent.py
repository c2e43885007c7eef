"""An ordinary agent on the OpenAI SDK: three plain Python tools, several steps, no telemetry code.

    opentelemetry-instrument python examples/weather_agent.py "Should I cycle in Bergen or in Oslo today?"

``OPENAI_BASE_URL`` (default: spanloop's gateway, ``http://127.0.0.1:8010/v1``), ``OPENAI_API_KEY`` and
``OPENAI_MODEL`` choose the model.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from openai import APIConnectionError, OpenAI

MAX_STEPS = 8
WEATHER = {
    "bergen": {"temperature_c": 9.0, "rain_mm": 14.2, "wind_kmh": 31.0},
    "oslo": {"temperature_c": 12.5, "rain_mm": 0.0, "wind_kmh": 11.0},
    "tromso": {"temperature_c": 3.0, "rain_mm": 2.1, "wind_kmh": 46.0},
}


def get_weather(city: str) -> dict[str, float]:
    """Today's weather in a city."""
    return WEATHER[city.strip().lower()]


def convert_temperature(celsius: float) -> dict[str, float]:
    """Degrees Celsius in degrees Fahrenheit."""
    return {"fahrenheit": round(float(celsius) * 9 / 5 + 32, 1)}


def compare(label_a: str, value_a: float, label_b: str, value_b: float) -> dict[str, str]:
    """Which of two labelled numbers is lower."""
    return {"lower": label_a if float(value_a) <= float(value_b) else label_b}


TOOLS: dict[str, Callable[..., dict[str, Any]]] = {
    tool.__name__: tool for tool in (get_weather, convert_temperature, compare)
}


def _parameters(**types: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": list(types),
        "additionalProperties": False,
    }


PARAMETERS = {
    "get_weather": _parameters(city="string"),
    "convert_temperature": _parameters(celsius="number"),
    "compare": _parameters(label_a="string", value_a="number", label_b="string", value_b="number"),
}
DEFINITIONS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": tool.__doc__, "parameters": PARAMETERS[name]}}
    for name, tool in TOOLS.items()
]


def call_tool(name: str, arguments: str) -> str:
    """Return the tool's result as JSON, or its error, for the model."""
    try:
        return json.dumps(TOOLS[name](**json.loads(arguments)))
    except (KeyError, TypeError, ValueError) as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def answer(client: OpenAI, model: str, question: str) -> str:
    """Let the model call tools until it answers."""
    messages: list[Any] = [
        {"role": "system", "content": "Answer weather questions. Look facts up with the tools, then answer briefly."},
        {"role": "user", "content": question},
    ]
    for _ in range(MAX_STEPS):
        reply = client.chat.completions.create(model=model, messages=messages, tools=DEFINITIONS).choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            return reply.content or ""
        for call in reply.tool_calls:
            if call.type == "function":
                result = call_tool(call.function.name, call.function.arguments)
                print(f"  {call.function.name}({call.function.arguments}) -> {result}")
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return f"(no answer after {MAX_STEPS} steps)"


def first_model(client: OpenAI) -> str:
    """Return the name of the first model that the endpoint serves."""
    try:
        served = client.models.list().data
    except APIConnectionError:
        sys.exit(f"No response from {client.base_url}; start it (spanloop up) or set OPENAI_BASE_URL.")
    if not served:
        sys.exit(f"{client.base_url} serves no model now; deploy one (spanloop models deploy NAME) or try again soon.")
    return served[0].id


def main() -> None:
    """Answer the question on the command line."""
    question = " ".join(sys.argv[1:]) or "Should I cycle in Bergen or in Oslo today?"
    client = OpenAI(
        base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8010/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", "not-needed"),
    )
    model = os.environ.get("OPENAI_MODEL") or first_model(client)
    print(question)
    print(answer(client, model, question))


if __name__ == "__main__":
    main()

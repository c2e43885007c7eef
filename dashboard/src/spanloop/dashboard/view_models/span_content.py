"""What a span says of messages, arguments and results, for spans that are no step of an episode.

Invariant: values are those of the span; nothing is converted. The converters read every dialect, and their steps show
the messages of a converted span.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "Arguments": ("gen_ai.tool.call.arguments", "tool.parameters", "input.value", "traceloop.entity.input"),
    "Result": ("gen_ai.tool.call.result", "output.value", "traceloop.entity.output"),
}
"""Title → the attributes that hold the value, the first of which counts."""
_REQUEST: Final = (
    "gen_ai.request.",
    "gen_ai.input.",
    "gen_ai.prompt",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "llm.input_messages",
    "llm.invocation_parameters",
    "llm.prompts",
    "llm.request",
    "llm.tools",
    "input.",
    "ai.prompt",
    "ai.settings",
    "tool.parameters",
    "traceloop.entity.input",
)


@dataclass(frozen=True, slots=True)
class SpanContent:
    """Messages or values of a span."""

    input_messages: str
    """JSON of canonical messages; empty where the span records none in this form."""
    output_messages: str
    values: Mapping[str, str]
    """Title → arguments or result."""


def read_content(attributes: Mapping[str, str]) -> SpanContent:
    """Return what the attributes say."""
    values = {
        title: next((attributes[name] for name in names if attributes.get(name)), "")
        for title, names in _VALUES.items()
    }
    return SpanContent(
        attributes.get(INPUT, ""),
        attributes.get(OUTPUT, ""),
        {title: value for title, value in values.items() if value},
    )


def is_of_request(name: str) -> bool:
    """Return whether an attribute holds a part of what was sent."""
    return name.startswith(_REQUEST)


def nested_json(values: Mapping[str, str]) -> str:
    """Return the values as one JSON object; a value that is a JSON object or list stands in it as such."""
    members = (
        f"{json.dumps(name)}: {value if _is_nested(value) else json.dumps(value)}" for name, value in values.items()
    )
    return f"{{{', '.join(members)}}}"


def _is_nested(value: str) -> bool:
    if not value.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True

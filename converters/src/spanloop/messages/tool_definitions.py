"""Definitions of tools in the spellings of chat APIs → ``{"name", "description", "parameters"}``.

Invariant: what is not known stays as it came.
"""

from collections.abc import Iterable
from typing import Final, cast

from .json_values import Fields, as_fields


def tool_definitions(listed: Iterable[object]) -> list[object]:
    """``{"name", "description", "parameters"}`` out of any spelling; Gemini's groups are taken apart."""
    definitions: list[object] = []
    for item in listed:
        fields = as_fields(item)
        declared = fields.get("function_declarations") or fields.get("functionDeclarations")
        if isinstance(declared, list):
            definitions += tool_definitions(cast("list[object]", declared))
        else:
            definitions.append(_definition(fields) if fields else item)
    return definitions


_SCHEMAS: Final = (
    "parameters",
    "input_schema",
    "inputSchema",
    "parameters_json_schema",
    "parametersJsonSchema",
    "schema",
)

_DEFINITION_SHELLS: Final = ("function", "toolSpec", "data")


def _definition(fields: Fields) -> Fields:
    inner = next((fields[key] for key in _DEFINITION_SHELLS if isinstance(fields.get(key), dict)), fields)
    source = cast("Fields", inner)
    definition = {key: source[key] for key in ("name", "description") if source.get(key) is not None}
    schema = next((source[key] for key in _SCHEMAS if source.get(key) is not None), None)
    if as_fields(schema).keys() == {"json"}:
        schema = as_fields(schema)["json"]
    if not definition:
        # A tool of the provider's own, such as {"type": "web_search"} or {"google_search": {}}.
        definition = {"name": fields["type"] if isinstance(fields.get("type"), str) else next(iter(fields))}
    return definition if schema is None else {**definition, "parameters": schema}

"""Tool definitions of generative AI spans as they were written before they became one JSON attribute."""

from typing import Final, cast

from spanloop.messages import dump
from spanloop.messages.json_values import Fields, as_list
from spanloop.messages.tool_definitions import tool_definitions

from .base import IndexedList, RawSpan
from .rows import as_text, decoded, fields_of, first


def offered_tools(span: RawSpan) -> str:
    """The tools that older spans list: indexed, or as one."""
    attributes = span.attributes
    if functions := span.lists.get("functions"):
        return "[" + ",".join(functions) + "]"
    listed = fields_of(first(attributes, "model_request_parameters")).get("function_tools")
    if not isinstance(listed, list):
        definitions = listed_tools(first(attributes, *WHOLE_TOOLS))
        return dump(definitions) if definitions else ""
    tools = [cast("Fields", item) for item in cast("list[object]", listed) if isinstance(item, dict)]
    return dump([{**item, "parameters": item.get("parameters_json_schema", item.get("parameters"))} for item in tools])


WHOLE_TOOLS: Final = ("gen_ai.request.tools", "llm.request.functions")
"""Attributes that hold all tools; Respan writes them where others write numbered attributes."""


def listed_tools(text: str) -> list[object]:
    """Definitions out of a list of them, which may be JSON again, alone in a list."""
    value = decoded(text) if text else None
    while isinstance(value, str) or (len(as_list(value)) == 1 and isinstance(as_list(value)[0], str)):
        inner = decoded(value if isinstance(value, str) else as_text(as_list(value)[0]))
        if inner == value or isinstance(inner, str):
            return []
        value = inner
    return tool_definitions(as_list(value))


def tool_definition(fields: Fields) -> Fields:
    """A tool as numbered attributes list it: its schema is JSON in text."""
    schemas = {key: decoded(as_text(fields[key])) for key in _SCHEMAS if isinstance(fields.get(key), str)}
    return {**fields, **schemas}


_SCHEMAS: Final = ("parameters", "input_schema")


def _function_entry(fields: Fields) -> str:
    return dump(tool_definition(fields))


FUNCTIONS: Final = IndexedList(("llm.request.functions", "gen_ai.request.functions"), _function_entry)

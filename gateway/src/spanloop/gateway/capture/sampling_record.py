"""The sampling parameters of a request, as its capture has them.

Invariant: every parameter that may change the distribution is recorded: those of the request that are not known to be
neutral, those that its tools imply, and those that the engine sets. A long value is cut, never left out.
"""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, cast

from spanloop.foundation.sampling import RECORDED, UNRECORDED

from ..engine.sampling import EngineSampling

_MOST_CHARACTERS: Final = 1000
"""Of a value; longer ones, such as JSON schemas, are cut."""
_MOST_NAME_CHARACTERS: Final = 64
_MOST_UNKNOWN: Final = 16
"""Unknown parameters that are recorded by name; the others are counted."""
_PARALLEL: Final = "parallel_tool_calls"


def record_sampling(document: Mapping[str, Any], engine: EngineSampling) -> dict[str, str]:
    """Return the parameters of a request as JSON text; absent ones have neutral values.

    Args:
        document: The request.
        engine: What the engine that answers it sets.
    """
    sent = {name: value for name, value in document.items() if value is not None and name not in UNRECORDED}
    known = {name: _text(value) for name, value in sent.items() if name in RECORDED and name != _PARALLEL}
    unknown = {name: value for name, value in sent.items() if name not in RECORDED}
    recorded = {**engine.defaults, **known}
    for name, value in islice(unknown.items(), _MOST_UNKNOWN):
        recorded[name[:_MOST_NAME_CHARACTERS]] = _text(value)
    if len(unknown) > _MOST_UNKNOWN:
        recorded["other_parameters"] = str(len(unknown) - _MOST_UNKNOWN)
    if document.get("tools") and document.get("tool_choice") != "none":
        recorded |= _tool_constraints(document)
        recorded |= engine.with_tools
    return {**recorded, **engine.always}


def _tool_constraints(document: Mapping[str, Any]) -> dict[str, str]:
    """Return how offered tools constrain their calls.

    vLLM constrains the call of a strict tool also where the model is free to call none, and the number of calls, if its
    tool parser has a structural tag (``DelegatingParser._apply_structural_tag``); that of ``hermes``, the default, has.
    """
    constraints: dict[str, str] = {}
    if strict := _strict_tools(document["tools"]):
        constraints["strict_tools"] = _text(strict)
    if document.get(_PARALLEL) is not None:
        constraints[_PARALLEL] = _text(document[_PARALLEL])
    return constraints


def _strict_tools(tools: object) -> list[str]:
    names: list[str] = []
    for tool in cast("list[object]", tools) if isinstance(tools, list) else []:
        if not isinstance(tool, dict):
            continue
        fields = cast("dict[str, Any]", tool)
        nested: object = fields.get("function")
        function = cast("dict[str, Any]", nested) if isinstance(nested, dict) else {}
        if any(each.get("strict") not in (None, False) for each in (fields, function)):
            names.append(str(function.get("name") or fields.get("name") or ""))
    return names


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"

"""Tool calls that the policy got wrong before any tool ran: an unknown name, or arguments that cannot be."""

import re
from collections.abc import Mapping
from typing import ClassVar, Final, cast

from spanloop.converters.enums import FaultOwner
from spanloop.messages import parse_json

from ..failure_patterns import failure_pattern
from ..status_codes import class_of_status
from .base import ErrorClass, Finding, ToolCallContext, ToolCallRule, own_words
from .environment import environment_fault
from .running_code import runs_code

_UNKNOWN: Final = failure_pattern("unknown_tool")
_REFUSED: Final = failure_pattern("arguments_refused")
"""What frameworks say of arguments that they do not take."""

_UNFIT: Final = failure_pattern("arguments_unfit")
"""What tools say of arguments, whichever; a service that is down may say it too."""

_DEMANDED: Final = failure_pattern("argument_demanded")
"""What says so of an argument that it names."""


class UnknownTool(ToolCallRule):
    """The action calls a tool that it was not offered."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        name = context.call.name
        offered = ", ".join(sorted(context.offered))
        message = f"the action calls {name!r}, which it was not offered"
        # What answers is there: smolagents leaves the agents that an agent may ask out of its tools.
        answers = (
            context.result is not None and not context.result.is_error and not _UNKNOWN.search(context.result.words)
        )
        is_strange = name not in context.offered and not answers
        says_so = not context.offered and bool(_UNKNOWN.search(context.error))
        if not (is_strange if context.offered else says_so):
            return None
        confidence = 0.97 if context.offered else 0.85
        return context.finding(
            ErrorClass.UNKNOWN_TOOL, FaultOwner.POLICY, confidence, message, tool=name, offered=offered
        )


class MalformedArguments(ToolCallRule):
    """The arguments of a call are not a JSON object."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        if context.call.is_valid:
            return None
        message = f"the arguments of {context.call.name!r} are not a JSON object"
        return context.finding(ErrorClass.INVALID_ARGUMENTS, FaultOwner.POLICY, 0.95, message, expected="a JSON object")


class RefusedArguments(ToolCallRule):
    """A tool that failed refuses the arguments by their form: a name, a type or an enumeration."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Only where the tool failed: a tool that puts up with odd arguments has not been misused."""
        result = context.result
        if result is None or not result.is_error or not context.call.is_valid:
            return None
        schema = context.offered.get(context.call.name, {})
        wrong = schema_violation(context.call.arguments, schema)
        if not _REFUSED.search(context.error) or (not wrong and _names_other(context, schema)):
            is_refusal = class_of_status(context.status) == ErrorClass.INVALID_ARGUMENTS
            said = wrong or (
                not runs_code(context.call)
                and not _names_other(context, schema)
                and (is_refusal or _UNFIT.search(context.error) is not None or _demands(context, schema))
            )
            if not said or (
                environment_fault(context.error, context.status) is not None and not (wrong and is_refusal)
            ):
                return None
        confidence = 0.9 if wrong else 0.8
        return context.finding(ErrorClass.INVALID_ARGUMENTS, FaultOwner.POLICY, confidence, wrong, violation=wrong)


def _names_other(context: ToolCallContext, schema: Mapping[str, object]) -> bool:
    """Whether valid arguments are refused by names that the schema does not know: the tool's own data do not fit."""
    known = {*_properties(schema), *cast("dict[str, object]", parse_json(context.call.arguments)), context.call.name}
    names = [name for groups in _QUOTED.findall(context.told[:_MOST_TEXT]) for name in groups if name]
    return bool(_properties(schema)) and bool(names) and known.isdisjoint(names) and "argument" not in context.told


_QUOTED: Final = re.compile(r"['`]([A-Za-z_]\w*)['`]|^([A-Za-z_]\w*)\n\s|validation errors? for (\w+)", re.MULTILINE)


def _properties(schema: Mapping[str, object]) -> dict[str, object]:
    properties = schema.get("properties")
    return cast("dict[str, object]", properties) if isinstance(properties, dict) else {}


def _demands(context: ToolCallContext, schema: Mapping[str, object]) -> bool:
    """Whether the error demands something of an argument, by the name that the schema or the call has for it."""
    result = context.result
    if result is None or not _DEMANDED.search(context.told[:_MOST_TEXT]):
        return False
    names = {*cast("dict[str, object]", parse_json(context.call.arguments)), *_properties(schema)}
    said = own_words(context.told, result.error_type)[:_MOST_TEXT]
    return any(re.search(rf"(?a:(?<!\w)){re.escape(name)}(?a:(?!\w))", said) for name in names if len(name) > _SHORT)


_MOST_TEXT: Final = 2_000
_SHORT: Final = 2
"""A name of so few letters is found in any text."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def schema_violation(arguments: str, schema: Mapping[str, object]) -> str:
    """How ``arguments`` (a JSON object) breaks its schema's top level; empty when it does not.

    Looks at required names, types, enumerations, and unknown names where the schema forbids them.
    """
    given = cast("dict[str, object]", parse_json(arguments))
    known = _properties(schema)
    required = schema.get("required")
    for name in cast("list[object]", required) if isinstance(required, list) else []:
        if name not in given:
            return f"required argument {name!r} is missing"
    for name, value in given.items():
        if name not in known:
            if schema.get("additionalProperties") is False:
                return f"argument {name!r} is not in the schema"
            continue
        if problem := _value_violation(name, value, known[name]):
            return problem
    return ""


def _value_violation(name: str, value: object, schema: object) -> str:
    if not isinstance(schema, dict):
        return ""
    fields = cast("dict[str, object]", schema)
    expected, allowed = fields.get("type"), fields.get("enum")
    if isinstance(expected, str) and expected in _TYPES:
        is_bool_as_number = isinstance(value, bool) and expected in {"integer", "number"}
        if is_bool_as_number or not isinstance(value, _TYPES[expected]):
            return f"argument {name!r} is {type(value).__name__}, expected {expected}"
    if isinstance(allowed, list) and value not in cast("list[object]", allowed):
        return f"argument {name!r} is {value!r}, expected one of {allowed}"
    return ""

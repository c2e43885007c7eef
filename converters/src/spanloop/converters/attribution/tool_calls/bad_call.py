"""Tool calls that the policy got wrong before any tool ran: an unknown name, or arguments that cannot be."""

import re
from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple, cast

from spanloop.converters.enums import FaultOwner
from spanloop.messages import dump, parse_json, parse_json_or_none
from spanloop.messages.json_values import as_fields

from ...errors.failure_patterns import failure_pattern
from ...errors.status_codes import class_of_status
from ..base import ErrorClass, Finding, ToolCallContext, ToolCallRule, error_message
from ..environment import environment_fault
from .running_code import runs_code
from .tool_kinds import is_hand_over

_UNKNOWN: Final = failure_pattern("unknown_tool")
_REFUSED: Final = failure_pattern("arguments_refused")
"""Errors of frameworks that refuse arguments."""

_UNFIT: Final = failure_pattern("arguments_unfit")
"""Errors about arguments that name none; a service that is down may report them too."""

_DEMANDED: Final = failure_pattern("argument_demanded")
"""Errors that demand something of an argument that they name."""


class UnknownTool(ToolCallRule):
    """The action calls a tool that it was not offered."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        name = context.call.name
        offered = ", ".join(sorted(context.offered))
        message = f"the action calls {name!r}, which it was not offered"
        is_strange = name not in context.offered and not _exists(context)
        is_reported = not context.offered and bool(_UNKNOWN.search(context.error))
        if not (is_strange if context.offered else is_reported):
            return None
        confidence = 0.97 if context.offered else 0.85
        return context.finding(
            ErrorClass.UNKNOWN_TOOL, FaultOwner.POLICY, confidence, message, tool=name, offered=offered
        )


def _exists(context: ToolCallContext) -> bool:
    """Whether a tool that was not offered ran all the same: a span of its own shows it, or it is one of the agents.

    Frameworks leave the agents that an agent may ask out of its tools. What the answer says shows nothing.
    """
    result = context.result
    if result is None or result.is_error or _UNKNOWN.search(result.words):
        return False
    name = _SEPARATORS.sub("", context.call.name.casefold())
    agents = (_SEPARATORS.sub("", agent) for agent in context.agent_names)
    return context.tool is not None or any(agent and name.endswith(agent) for agent in agents)


_SEPARATORS: Final = re.compile(r"[\W_]+")


class MalformedArguments(ToolCallRule):
    """The arguments of a call are not a JSON object."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        if context.call.is_valid:
            return None
        if _is_blank(context.call.arguments) and context.result is not None and not context.result.is_error:
            return None  # a tool without parameters took white space for no arguments
        message = f"the arguments of {context.call.name!r} are not a JSON object"
        return context.finding(ErrorClass.INVALID_ARGUMENTS, FaultOwner.POLICY, 0.95, message, expected="a JSON object")


def _is_blank(arguments: str) -> bool:
    parsed = parse_json_or_none(arguments)
    return not (parsed if isinstance(parsed, str) else arguments).strip()


class SeveralHandOvers(ToolCallRule):
    """One of several hand-overs in one answer failed: only one agent can go on."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        calls = context.step.span.output[0].tool_calls
        is_error = context.result is not None and context.result.is_error
        if not is_error or not is_hand_over(context.call.name) or sum(is_hand_over(call.name) for call in calls) <= 1:
            return None
        message = f"the action hands over {len(calls)} times at once"
        return context.finding(ErrorClass.REFUSED_ACTION, FaultOwner.POLICY, 0.6, message)


class ViolatedSchema(ToolCallRule):
    """No tool of the offered schema can take the arguments: whatever the answer says, the policy wrote them."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one.

        The tool's own span may show something else: that it worked (unless the policy then corrected the arguments),
        or a fault of its environment by its type.
        """
        result = context.result
        if not context.violation or result is None:
            return None
        if context.tool is not None and not result.is_error and not context.corrected_arguments:
            return None
        kind = f"{result.error_type} {context.tool.exception.type}" if context.tool else ""
        if environment_fault(kind, context.status) is not None:
            return None
        wrong, confidence = context.violation, 0.9 if result.is_error else 0.6
        return context.finding(ErrorClass.INVALID_ARGUMENTS, FaultOwner.POLICY, confidence, wrong, violation=wrong)


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
            is_refused = wrong or (
                not runs_code(context.call)
                and not _names_other(context, schema)
                and (is_refusal or _UNFIT.search(context.error) is not None or _demands(context, schema))
            )
            if not is_refused or (
                environment_fault(context.error, context.status) is not None and not (wrong and is_refusal)
            ):
                return None
        confidence = 0.9 if wrong else 0.8
        return context.finding(ErrorClass.INVALID_ARGUMENTS, FaultOwner.POLICY, confidence, wrong, violation=wrong)


def _names_other(context: ToolCallContext, schema: Mapping[str, object]) -> bool:
    """Whether valid arguments are refused by names that the schema does not know: the tool's own data do not fit."""
    known = {*_properties(schema), *cast("dict[str, object]", parse_json(context.call.arguments)), context.call.name}
    names = [name for groups in _QUOTED.findall(context.result_text[:_MOST_TEXT]) for name in groups if name]
    return (
        bool(_properties(schema)) and bool(names) and known.isdisjoint(names) and "argument" not in context.result_text
    )


_QUOTED: Final = re.compile(r"['`]([A-Za-z_]\w*)['`]|^([A-Za-z_]\w*)\n\s|validation errors? for (\w+)", re.MULTILINE)


def _properties(schema: Mapping[str, object]) -> dict[str, object]:
    properties = schema.get("properties")
    return cast("dict[str, object]", properties) if isinstance(properties, dict) else {}


def _demands(context: ToolCallContext, schema: Mapping[str, object]) -> bool:
    """Whether the error demands something of an argument, by the name that the schema or the call has for it."""
    result = context.result
    if result is None or not _DEMANDED.search(context.result_text[:_MOST_TEXT]):
        return False
    names = {*cast("dict[str, object]", parse_json(context.call.arguments)), *_properties(schema)}
    message = error_message(context.result_text, result.error_type)[:_MOST_TEXT]
    return any(re.search(rf"(?a:(?<!\w)){re.escape(name)}(?a:(?!\w))", message) for name in names if len(name) > _SHORT)


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


def schema_violation(arguments: str, schema: Mapping[str, object], *, allows_conversion: bool = False) -> str:
    """Return the violation of a schema's top level by ``arguments`` (a JSON object); empty without one.

    Looks at required names, types, enumerations, and unknown names where the schema forbids them.

    Args:
        arguments: What the action gives.
        schema: Of the tool's parameters.
        allows_conversion: Whether unknown names, and values that a tool can convert, break nothing.
    """
    given = cast("dict[str, object]", parse_json(arguments))
    known = _properties(schema)
    required = schema.get("required")
    for name in cast("list[object]", required) if isinstance(required, list) else []:
        if name not in given:
            return f"required argument {name!r} is missing"
    for name, value in given.items():
        if name not in known:
            if schema.get("additionalProperties") is False and not allows_conversion:
                return f"argument {name!r} is not in the schema"
            continue
        problem = _value_violation(name, value, known[name])
        if problem and not (allows_conversion and _is_convertible(value, as_fields(known[name]))):
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


class SchemaSigns(NamedTuple):
    """Signs in the text of arguments of a violation of a schema; they are searched before anything is parsed."""

    required: tuple[str, ...]
    """Required names, in quotes."""
    mistyped: tuple[str, ...]
    """Names of numbers, truth values, lists and objects with a text behind them."""
    has_choices: bool
    """Whether a value has to be one of an enumeration."""

    def may_break(self, arguments: str) -> bool:
        """Whether ``arguments`` (a JSON object) may break the schema."""
        holds = arguments.__contains__
        return self.has_choices or not all(map(holds, self.required)) or any(map(holds, self.mistyped))


def schema_signs(schema: Mapping[str, object]) -> SchemaSigns:
    """Return the signs of a violation of ``schema``."""
    required = schema.get("required")
    names = list(cast("list[object]", required)) if isinstance(required, list) else []
    fields = {name: as_fields(value) for name, value in _properties(schema).items()}
    return SchemaSigns(
        tuple(dump(name) for name in names if isinstance(name, str)),
        tuple(f'{dump(name)}:"' for name, value in fields.items() if value.get("type") in _STRUCTURED),
        has_choices=any("enum" in value for value in fields.values()),
    )


_STRUCTURED: Final = ("integer", "number", "boolean", "array", "object")
_NUMBER: Final = re.compile(r"\s*[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\s*")


def _is_convertible(value: object, schema: Mapping[str, object]) -> bool:
    """Whether a tool can make a value of its schema's type of ``value``: a quoted number, or a text."""
    choices, expected = schema.get("enum"), schema.get("type")
    if isinstance(choices, list):
        return str(value).casefold() in {str(choice).casefold() for choice in cast("list[object]", choices)}
    if value is None or (expected == "string" and isinstance(value, int | float)):
        return True
    text = str(value).strip()
    if expected in {"integer", "number"}:
        return _NUMBER.fullmatch(text) is not None
    if expected == "boolean":
        return text.casefold() in _TRUTH_VALUES
    return expected in {"array", "object"} and text.startswith(("[", "{"))


_TRUTH_VALUES: Final = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})

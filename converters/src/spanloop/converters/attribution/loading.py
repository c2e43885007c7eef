"""Attribution rules by name, in order of precedence: built in, from packages, or from a module of the user's."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import ExtensionPoint, adapt_callable, split_reference

from .base import EndingRule, EpisodeRule, ModelCallRule, Rule, Rules, ToolCallRule
from .former_names import current_name

DEFAULT: Final = "default"
"""Stands for all built-in rules that are not named beside it."""

_HERE: Final = "spanloop.converters.attribution"
BUILT_IN: Final[Mapping[str, str]] = {
    "incomplete_stream": f"{_HERE}.broken_output:IncompleteStream",
    "failed_request": f"{_HERE}.failed_request:FailedRequest",
    "truncated_output": f"{_HERE}.broken_output:TruncatedOutput",
    "filtered_output": f"{_HERE}.broken_output:FilteredOutput",
    "malformed_output": f"{_HERE}.broken_output:MalformedOutput",
    "unknown_tool": f"{_HERE}.tool_calls.bad_call:UnknownTool",
    "malformed_arguments": f"{_HERE}.tool_calls.bad_call:MalformedArguments",
    "several_hand_overs": f"{_HERE}.tool_calls.bad_call:SeveralHandOvers",
    "violated_schema": f"{_HERE}.tool_calls.bad_call:ViolatedSchema",
    "refused_arguments": f"{_HERE}.tool_calls.bad_call:RefusedArguments",
    "tool_environment": f"{_HERE}.tool_calls.tool_failure:ToolEnvironment",
    "hallucinated_arguments": f"{_HERE}.tool_calls.hallucinated_arguments:HallucinatedArguments",
    "wrong_user_value": f"{_HERE}.tool_calls.hallucinated_arguments:WrongUserValue",
    "broken_code": f"{_HERE}.tool_calls.tool_failure:BrokenCode",
    "impossible_action": f"{_HERE}.tool_calls.tool_failure:ImpossibleAction",
    "corrected_arguments": f"{_HERE}.tool_calls.corrected_arguments:CorrectedArguments",
    "given_value": f"{_HERE}.tool_calls.hallucinated_arguments:GivenValue",
    "tool_raised": f"{_HERE}.tool_calls.tool_failure:ToolRaised",
    "unanswered": f"{_HERE}.tool_calls.tool_failure:Unanswered",
    "loop": f"{_HERE}.endings.loop:Loop",
    "crash": f"{_HERE}.crash:Crash",
    "repeated_actions": f"{_HERE}.endings.repeated_actions:RepeatedActions",
    "stopped_in_action": f"{_HERE}.endings.last_answer:StoppedInAction",
    "unseen_result": f"{_HERE}.endings.unseen_result:UnseenResult",
    "unseen_answer": f"{_HERE}.endings.last_answer:UnseenAnswer",
    "declined": f"{_HERE}.endings.last_answer:Declined",
    "poor_result": f"{_HERE}.endings.poor_result:PoorResult",
    "invented_data": f"{_HERE}.endings.invented:InventedData",
    "reported_failure": f"{_HERE}.endings.last_answer:ReportedFailure",
    "team_answer": f"{_HERE}.endings.team:TeamAnswer",
    "wrong_answer": f"{_HERE}.endings.last_answer:WrongAnswer",
}
"""In order of precedence."""

_BY_ARGUMENT: Final[Mapping[tuple[str, ...], type[Rule]]] = {
    ("step",): ModelCallRule,
    ("context",): ToolCallRule,
    ("episode",): EpisodeRule,
    ("episode", "reward"): EndingRule,
}


def rule_of_callable(function: Callable[..., object], what: str) -> type[Rule]:
    """Return the class of a callable; the names of its first arguments say what it looks at.

    Raises:
        ConfigurationError: They are none of ``(step)``, ``(context)``, ``(episode)`` and ``(episode, reward)``.
    """
    try:
        names = tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = ()
    for arguments in (names[:2], names[:1]):
        if arguments in _BY_ARGUMENT:
            return adapt_callable(function, _BY_ARGUMENT[arguments], method="find", arguments=arguments, what=what)
    forms = ", ".join(f"({', '.join(arguments)})" for arguments in _BY_ARGUMENT)
    raise ConfigurationError(
        f"{what.capitalize()} takes ({', '.join(names)}), expected one of {forms}, then options by name.",
        next_step="docs/reference/extension-points.md has the form of a rule.",
    )


RULE_POINT: Final = ExtensionPoint[Rule](
    what="attribution rule", group="spanloop.rules", base=Rule, built_in=BUILT_IN, adapt=rule_of_callable
)


def attribution_rules(references: Iterable[str]) -> Rules:
    """Return the rules that ``references`` name, in their order.

    Args:
        references: Each a name or ``module:rule``, with options as ``:key=value``; or ``default`` for all built-in
            rules that are not named beside it.

    Raises:
        ConfigurationError: One cannot be found, is not a rule, or has an option that cannot be used.
    """
    references = [_current(reference) for reference in references]
    named = {split_reference(reference)[0] for reference in references}
    rules: list[Rule] = []
    for reference in references:
        every = [name for name in BUILT_IN if name not in named] if reference == DEFAULT else [reference]
        rules += [_rule(each) for each in every]
    return Rules(
        tuple(rule for rule in rules if isinstance(rule, ModelCallRule)),
        tuple(rule for rule in rules if isinstance(rule, ToolCallRule)),
        tuple(rule for rule in rules if isinstance(rule, EpisodeRule)),
        tuple(rule for rule in rules if isinstance(rule, EndingRule)),
    )


def _current(reference: str) -> str:
    name, separator, options = reference.partition(":")
    return f"{current_name(name)}{separator}{options}"


def _rule(reference: str) -> Rule:
    rule = RULE_POINT.find(reference)
    if isinstance(rule, (*_BY_ARGUMENT.values(),)):
        return rule
    expected = ", ".join(kind.__name__ for kind in _BY_ARGUMENT.values())
    raise ConfigurationError(
        f"Attribution rule {reference!r} is a {type(rule).__name__}, expected a subclass of one of {expected}.",
        next_step="docs/reference/extension-points.md has the form of a rule.",
    )

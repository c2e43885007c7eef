"""Attribution rules by name, in order of precedence: built in, from packages, or from a module of the user's."""

from collections.abc import Iterable
from typing import Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.plugins import find_extension

from .base import EndingRule, EpisodeRule, ModelCallRule, Rules, ToolCallRule

GROUP: Final = "spanloop.rules"
DEFAULT: Final = "default"
"""Stands for all built-in rules."""

Rule = ModelCallRule | ToolCallRule | EpisodeRule | EndingRule


def attribution_rules(references: Iterable[str], built_in: Rules) -> Rules:
    """The rules that ``references`` name: each a name, ``module:rule``, or ``default`` for those ``built_in``.

    Raises:
        ConfigurationError: When one cannot be found, or is no rule.
    """
    rules = Rules((), (), (), ())
    for reference in references:
        added = built_in if reference == DEFAULT else _as_rules(reference)
        rules = Rules(
            rules.model_calls + added.model_calls,
            rules.tool_calls + added.tool_calls,
            rules.episodes + added.episodes,
            rules.endings + added.endings,
        )
    return rules


def _as_rules(reference: str) -> Rules:
    rule = find_extension(reference, group=GROUP, what="attribution rule", built_in={})
    return Rules(
        (rule,) if isinstance(rule, ModelCallRule) else (),
        (rule,) if isinstance(rule, ToolCallRule) else (),
        (rule,) if isinstance(rule, EpisodeRule) else (),
        (rule,) if isinstance(rule, EndingRule) else _refuse(rule, reference),
    )


def _refuse(rule: object, reference: str) -> tuple[EndingRule, ...]:
    if isinstance(rule, Rule):
        return ()
    raise ConfigurationError(
        f"Rule {reference!r} is {type(rule).__name__}, expected one of the rule types.",
        next_step="See docs/how-to/extend.md for the form of a rule.",
    )

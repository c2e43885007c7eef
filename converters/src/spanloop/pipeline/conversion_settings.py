"""How the service converts: ``spanloop.toml`` and the environment as conversion options.

Invariant: a judge that fails never fails a conversion. The rules after it speak instead, and the failure is counted.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from spanloop.configuration import Configuration, load_configuration
from spanloop.converters import Options
from spanloop.converters.attribution import RULES, AskedJudge, EndingRule, LocatedFinding, judged_ending
from spanloop.converters.attribution.loading import attribution_rules
from spanloop.converters.extensions import find_extension
from spanloop.converters.rewards import reward_functions
from spanloop.converters.steps import Episode
from spanloop.model_client import BudgetExceededError, ModelClient
from spanloop.semconv.environment import REWARDS_ENV
from spanloop.semconv.errors import ConfigurationError

JUDGES: Final = "spanloop.judges"

_log: Final = logging.getLogger("pipeline.judge")


class Conversion(NamedTuple):
    """Options, and what became of the judge's calls so far."""

    options: Options
    judge_counts: Counter[str]
    """``answered``, ``unusable`` (no verdict in the answer), ``over_budget`` and ``failed``."""


def conversion_settings(
    data_dir: Path, file: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Conversion:
    """Read how to convert.

    Args:
        data_dir: The data directory: it may hold ``spanloop.toml``, and holds the model client's cache.
        file: The configuration file; None looks for one.
        environment: ``SPANLOOP_REWARDS`` in it replaces the file's reward functions.

    Raises:
        ConfigurationError: The file is invalid, or names a rule, judge or reward that cannot be found.
    """
    configuration = load_configuration(data_dir, file)
    references = [name for name in environment.get(REWARDS_ENV, "").split(",") if name.strip()]
    functions = reward_functions(references or configuration.rewards.functions)
    rules = attribution_rules(configuration.attribution.rules, RULES)
    counts: Counter[str] = Counter()
    if configuration.attribution.judge:
        ask = _judge(configuration, data_dir)
        judge = AskedJudge(ask, configuration.attribution.judge)
        rules = rules._replace(endings=(_counted(judged_ending(judge), counts), *rules.endings))
    return Conversion(Options(reward_functions=functions, rules=rules), counts)


def _judge(configuration: Configuration, data_dir: Path) -> Callable[[str], str]:
    clients = {name: ModelClient(model, data_dir).ask for name, model in configuration.models.items()}
    judge = configuration.attribution.judge
    found = find_extension(judge, group=JUDGES, what="judge", built_in=clients)
    if not callable(found):
        raise ConfigurationError(
            f"Judge {judge!r} is {type(found).__name__}, expected a callable from a prompt to an answer.",
            next_step="See docs/how-to/extend.md for the form of a judge.",
        )
    return cast("Callable[[str], str]", found)


def _counted(rule: EndingRule, counts: Counter[str]) -> EndingRule:
    """``rule``, silent where it fails."""

    def see(episode: Episode, reward: float | None) -> LocatedFinding | None:
        try:
            found = rule.see(episode, reward)
        except BudgetExceededError:
            counts["over_budget"] += 1
            return None
        except Exception as error:  # noqa: BLE001 - a judge is anybody's code, and the rules can do without it
            counts["failed"] += 1
            _log.warning("the judge failed, rules decide: %s", error)
            return None
        counts["unusable" if found is None else "answered"] += 1
        return found

    return EndingRule(rule.name, see)

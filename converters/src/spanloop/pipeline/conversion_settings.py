"""How the service converts: ``spanloop.toml`` and the environment as conversion options.

Invariant: a judge that fails never fails a conversion. The rules after it decide instead, and the failure is counted.
After ``MOST_FAILURES`` failures in a row a judge is not asked for ``PAUSE_S`` seconds: a dead endpoint costs a few
timeouts, not one for each episode.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from spanloop.converters import Options
from spanloop.converters.attribution import RULES, AskedJudge, EndingRule, LocatedFinding, judged_ending
from spanloop.converters.attribution.loading import attribution_rules
from spanloop.converters.rewards import reward_functions
from spanloop.converters.steps import Episode
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.model_client import BudgetExceededError, ModelClient
from spanloop.foundation.plugins import find_extension
from spanloop.foundation.settings import Configuration, load_configuration
from spanloop.semconv.environment import REWARDS_ENV

JUDGES: Final = "spanloop.judges"

MOST_FAILURES: Final = 3
PAUSE_S: Final = 300.0

_log: Final = logging.getLogger("pipeline.judge")


class Conversion(NamedTuple):
    """Options, and what became of the judge's calls so far."""

    options: Options
    judge_counts: Counter[str]
    """``answered``, ``unusable`` (no verdict in the answer), ``over_budget``, ``failed`` and ``skipped`` (paused)."""


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
        rules = rules._replace(endings=(guarded_judge(judged_ending(judge), counts), *rules.endings))
    options = Options(
        reward_functions=functions, rules=rules, train_abandoned_attempts=configuration.training.abandoned_attempts
    )
    return Conversion(options, counts)


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


class _CircuitBreaker:
    """Asks a rule, counts what became of it, and pauses it after failures in a row."""

    def __init__(self, rule: EndingRule, counts: Counter[str], clock: Callable[[], float]) -> None:
        self._rule: Final = rule
        self._counts: Final = counts
        self._clock: Final = clock
        self._failures_in_a_row = 0
        self._paused_until_s = float("-inf")

    def see(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """What the rule sees; None where it fails or is paused."""
        if self._clock() < self._paused_until_s:
            self._counts["skipped"] += 1
            return None
        try:
            found = self._rule.see(episode, reward)
        except BudgetExceededError:
            self._counts["over_budget"] += 1
            return None
        except Exception as error:  # noqa: BLE001 - a judge is anybody's code, and the rules can do without it
            self._failed(error)
            return None
        self._failures_in_a_row = 0
        self._counts["unusable" if found is None else "answered"] += 1
        return found

    def _failed(self, error: Exception) -> None:
        self._counts["failed"] += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row < MOST_FAILURES:
            return
        self._failures_in_a_row = 0
        self._paused_until_s = self._clock() + PAUSE_S
        _log.warning("the judge failed %d times in a row, rules decide for %.0f s: %s", MOST_FAILURES, PAUSE_S, error)


def guarded_judge(rule: EndingRule, counts: Counter[str], clock: Callable[[], float] = time.monotonic) -> EndingRule:
    """``rule``, silent where it fails."""
    return EndingRule(rule.name, _CircuitBreaker(rule, counts, clock).see)

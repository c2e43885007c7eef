"""Conversion options of the service, from ``spanloop.toml`` and the environment.

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
from typing import Final, NamedTuple

from pydantic import InstanceOf, PrivateAttr

from spanloop.converters import Options
from spanloop.converters.attribution import (
    AskedJudge,
    EndingRule,
    LlmJudge,
    LocatedFinding,
    attribution_rules,
)
from spanloop.converters.rewards import reward_functions
from spanloop.converters.steps import Episode
from spanloop.foundation.model_client import BudgetExceededError
from spanloop.foundation.settings import Configuration, load_configuration
from spanloop.semconv.environment import REWARDS_ENV

from .judges import JUDGE_POINT, Judge, JudgeContext

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
    rules = attribution_rules(configuration.attribution.rules)
    counts: Counter[str] = Counter()
    if configuration.attribution.judge:
        judge = AskedJudge(_judge(configuration, data_dir).ask, configuration.attribution.judge)
        rules = rules._replace(endings=(guarded_judge(LlmJudge(judge=judge), counts), *rules.endings))
    options = Options(
        reward_functions=functions, rules=rules, train_abandoned_attempts=configuration.training.abandoned_attempts
    )
    return Conversion(options, counts)


def _judge(configuration: Configuration, data_dir: Path) -> Judge:
    reference = configuration.attribution.judge
    options = {"model": reference} if reference in configuration.models else {}
    judge = JUDGE_POINT.find("model" if options else reference, options)
    return judge.bind(JudgeContext(data_dir, configuration.models))


class GuardedJudge(EndingRule):
    """Asks a rule, counts what became of it, and pauses it after failures in a row."""

    rule: InstanceOf[EndingRule]
    counts: InstanceOf[Counter[str]]
    clock: Callable[[], float]
    _failures_in_a_row: int = PrivateAttr(default=0)
    _paused_until_s: float = PrivateAttr(default=float("-inf"))

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the rule's finding; None where it fails or is paused."""
        if self.clock() < self._paused_until_s:
            self.counts["skipped"] += 1
            return None
        try:
            finding = self.rule.find(episode, reward)
        except BudgetExceededError:
            self.counts["over_budget"] += 1
            return None
        except Exception as error:  # noqa: BLE001 - a judge is anybody's code, and the rules can do without it
            self._failed(error)
            return None
        self._failures_in_a_row = 0
        self.counts["unusable" if finding is None else "answered"] += 1
        return finding

    def _failed(self, error: Exception) -> None:
        self.counts["failed"] += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row < MOST_FAILURES:
            return
        self._failures_in_a_row = 0
        self._paused_until_s = self.clock() + PAUSE_S
        _log.warning("the judge failed %d times in a row, rules decide for %.0f s: %s", MOST_FAILURES, PAUSE_S, error)


def guarded_judge(rule: EndingRule, counts: Counter[str], clock: Callable[[], float] = time.monotonic) -> EndingRule:
    """Return ``rule``, silent where it fails."""
    guarded = GuardedJudge(rule=rule, counts=counts, clock=clock)
    guarded.set_name(rule.name)
    return guarded

"""What two stored evaluations say of the metrics of a rule, task by task.

Invariant: a task that a look has counted keeps the values it had then. Attempts that came later would change an e-value
that was already seen, and the error level would no longer hold.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from spanloop.evaluation.results import (
    Evaluation,
    EvaluationError,
    load_episodes,
    load_evaluation,
    load_evaluations,
    task_values,
)
from spanloop.foundation.settings import Promotion
from spanloop.foundation.settings.metric import Metric
from spanloop.store import Store

from .evidence import Decision
from .judge import Pair, TaskPairs

Values = Mapping[str, Mapping[Metric, tuple[float, float]]]
"""Task → metric → values of candidate and champion."""


class Compared(NamedTuple):
    """Two evaluations of one name."""

    candidate: Evaluation
    champion: Evaluation


def find_evaluations(store: Store, candidate: str, champion: str, *, name: str = "") -> Compared:
    """Return the evaluations to compare: those of ``name``, else the newest of the candidate that the champion has too.

    Raises:
        EvaluationError: They have no evaluation with the same name.
    """
    if name:
        return Compared(load_evaluation(store, f"{name}:{candidate}"), load_evaluation(store, f"{name}:{champion}"))
    ours, theirs = (
        {evaluation.name: evaluation for evaluation in load_evaluations(store, model=model)}
        for model in (candidate, champion)
    )
    common = sorted(ours.keys() & theirs.keys(), key=lambda each: ours[each].created_at)
    if not common:
        raise EvaluationError(
            f"{candidate} and {champion} have no evaluation with the same name: "
            f"{candidate} has {', '.join(ours) or 'none'}, {champion} has {', '.join(theirs) or 'none'}.",
            next_step="Let both attempt the same tasks (spanloop run), then: "
            f"spanloop evaluate {candidate} --name NAME; spanloop evaluate {champion} --name NAME",
        )
    return Compared(ours[common[-1]], theirs[common[-1]])


def task_pairs(store: Store, compared: Compared, rule: Promotion) -> Values:
    """Return the values of the rule's metrics at the tasks of both; tasks that either was trained on are left out.

    Raises:
        EvaluationError: An evaluation is of an earlier spanloop, or they have no task in common.
    """
    candidate, champion = (_values(store, evaluation) for evaluation in compared)
    common = candidate.join(champion, on="task_id", suffix="_champion").sort("task_id")
    if common.is_empty():
        raise EvaluationError(
            f"{compared.candidate.evaluation_id} and {compared.champion.evaluation_id} have no task in common "
            f"({compared.candidate.task_set}; {compared.champion.task_set}).",
            next_step="Let both attempt the same tasks, then evaluate them again.",
        )
    metrics = [metric for metric in (rule.metric, *rule.guards) if metric.value in candidate.columns]
    return {
        row["task_id"]: {
            metric: (float(row[metric.value]), float(row[f"{metric.value}_champion"]))
            for metric in metrics
            if row[metric.value] is not None and row[f"{metric.value}_champion"] is not None
        }
        for row in common.iter_rows(named=True)
    }


def with_earlier_look(values: Values, earlier: Sequence[Decision]) -> Values:
    """Return ``values``, with those of the newest look in ``earlier`` (newest first) where it has the task."""
    seen = [decision.evidence.pairs for decision in earlier if decision.evidence.pairs]
    return {**values, **seen[0]} if seen else values


def by_metric(values: Values) -> Mapping[Metric, TaskPairs]:
    """Return the values as the rule needs them."""
    found: dict[Metric, dict[str, Pair]] = {}
    for task, of_task in values.items():
        for metric, pair in of_task.items():
            found.setdefault(metric, {})[task] = Pair(*pair)
    return found


def _values(store: Store, evaluation: Evaluation) -> pl.DataFrame:
    if not evaluation.states:
        raise EvaluationError(
            f"{evaluation.evaluation_id} is of an earlier spanloop, which left attempts without a score out.",
            next_step=f"spanloop evaluate {evaluation.model} --name {evaluation.name}",
        )
    counted = load_episodes(store, evaluation).filter((pl.col("left_out") == "") & ~pl.col("is_training_task"))
    return task_values(counted)

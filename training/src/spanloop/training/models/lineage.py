"""Lineage both ways: from a version to the spans that trained it, and from a span to the versions that learned from it.

A version has learned from the spans of its own job, until the step of its weights, and from those of its ancestors.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import polars as pl

from spanloop.store import Store

from ..jobs.training_ids import job_of
from .base_model import BaseModelFacts, Training
from .registry import ModelVersion, Registry

_EVERY_STEP: Final = 2**32 - 1


class LearnedVersion(NamedTuple):
    """A version that learned from a span or trace."""

    reference: str
    """``name@version``."""
    job_id: str
    """The job that trained on it: the version's own, or an ancestor's."""
    through: str
    """The version that this job made; the version itself, or an ancestor."""
    spans: int
    """Model calls of the trace that the job trained on."""
    times: int
    """How often the job trained on their rows."""


def with_lineage(base: BaseModelFacts, registry: Registry) -> BaseModelFacts:
    """Return ``base`` with its ancestors and the jobs that made them.

    Raises:
        JobError: The base or an ancestor is not registered.
    """
    versions = tuple(reversed(registry.lineage(base.reference)))
    trainings = trainings_of(versions)
    return base._replace(lineage=tuple(version.reference for version in versions), trainings=trainings)


def trainings_of(versions: Iterable[ModelVersion]) -> tuple[Training, ...]:
    """Return the trainings that made ``versions``; imported ones have none."""
    return tuple(Training(each.training_id, last_step(each)) for each in versions if each.training_id)


def trainings_of_schedule(registry: Registry, job_ids: AbstractSet[str]) -> tuple[Training, ...]:
    """Return the watermark of a schedule: the trainings of its jobs that made a version.

    What a job trained on without a version is in no model, so it is not consumed.
    """
    return trainings_of(version for version in registry.list() if version.job_id in job_ids)


def trained_episodes(store: Store, trainings: Sequence[Training]) -> frozenset[str]:
    """Return the episodes that ``trainings`` have learned from, as far as they are recorded in ``training_samples``.

    Raises:
        StoreError: ClickHouse is unreachable.
    """
    frame = store.query(
        "training_trained_episodes",
        job_ids=[training.job_id for training in trainings],
        last_steps=[training.last_step for training in trainings],
    )
    return frozenset(frame["episode_id"].to_list())


def spans_of_version(store: Store, registry: Registry, reference: str, *, max_rows: int) -> pl.DataFrame:
    """Return the model calls that trained a version and its ancestors, those trained on most often first.

    The columns are those of the query ``lineage_spans`` and ``version``, the one whose job trained on the call; the
    column ``spans`` has the number without the limit.

    Raises:
        JobError: There is no such version.
        StoreError: ClickHouse is unreachable.
    """
    versions = {version.training_id: version for version in registry.lineage(reference) if version.training_id}
    frame = store.query(
        "lineage_spans",
        job_ids=list(versions),
        last_steps=[last_step(version) for version in versions.values()],
        max_rows=max_rows,
    )
    references = [versions[str(job)].reference for job in frame["job_id"]]
    return frame.with_columns(version=pl.Series(references, dtype=pl.String))


def versions_of_span(store: Store, registry: Registry, trace_id: str, span_id: str = "") -> list[LearnedVersion]:
    """Return the versions that learned from a trace, or from its one span, in the order of their registration.

    Raises:
        StoreError: ClickHouse is unreachable.
    """
    samples = store.query("lineage_jobs", trace_id=trace_id, span_id=span_id)
    versions = sorted(registry.list(), key=lambda version: version.created_at)
    by_training = {version.training_id: version for version in versions if version.training_id}
    learned: list[LearnedVersion] = []
    for (job_id,), rows in samples.group_by("job_id", maintain_order=True):
        source = by_training.get(str(job_id))
        if source is None:
            continue  # the job registered nothing
        until = rows.filter(pl.col("first_step") <= last_step(source))
        if until.is_empty():
            continue
        learned += [
            LearnedVersion(
                version.reference,
                job_of(str(job_id)),
                source.reference,
                until["span_id"].n_unique(),
                int(until["times"].sum()),
            )
            for version in _with_descendants(source, versions)
        ]
    order = {version.reference: number for number, version in enumerate(versions)}
    return sorted(learned, key=lambda each: (order[each.reference], order[each.through]))


def last_step(version: ModelVersion) -> int:
    """Return the step of a version's weights; the largest number when its metadata does not say."""
    steps = version.metadata.get("steps")
    return steps if isinstance(steps, int) else _EVERY_STEP


def _with_descendants(source: ModelVersion, in_order: Iterable[ModelVersion]) -> list[ModelVersion]:
    """Return ``source`` and the versions trained from it; a version is registered after its parent."""
    references = {source.reference}
    descendants = [source]
    for version in in_order:
        if version.parent in references and version.reference not in references:
            references.add(version.reference)
            descendants.append(version)
    return descendants

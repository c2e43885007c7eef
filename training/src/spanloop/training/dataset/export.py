"""Export a job's dataset from the store, once; it is immutable afterwards.

``dataset.parquet`` is written first, then ``manifest.json`` is renamed into place, so a job folder with a manifest has
its data. An export without trainable rows writes neither: the job can be retried when more data exists.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import JsonValue

from spanloop.foundation.paths import write_atomically
from spanloop.store import Store
from spanloop.store.data_sets import find_data_set
from spanloop.store.pinned_revisions import pin
from spanloop.training.recipes.base import LearnsFrom, Recipe
from spanloop.training.recipes.choices import Tokens
from spanloop.training.recipes.text import Imitation, RendersText

from ..models.base_model import BaseModelFacts, Training
from ..models.lineage import trained_episodes
from ..spec.job_spec import JobSpec
from ..spec.row_source import RowSource
from .base_losses import base_losses
from .empty import no_rows_error
from .held_out import HELD_OUT_NAME, hold_out
from .manifest import DATA_NAME, MANIFEST_NAME, Count, Manifest, PinnedEpisode, sha256_of
from .pairs import PAIR_COLUMNS
from .row_age import AGE_COLUMNS, with_ages
from .selection import Rules, Selection, is_of_the_base, select_rows
from .selector import load_selector
from .strategies.sample_metrics import METRIC_COLUMNS
from .strategies.settings import DataStrategies
from .text.correction_rows import correction_rows
from .text.dialog_rows import dialog_file_facts, dialog_rows
from .text.rendering import Renderer
from .text.rows import with_rendered_rows

QUERY: Final = "training_trajectories"
COLUMNS: Final = (
    "group_id",
    "session",
    "row_number",
    "episode_id",
    "revision",
    "source",
    "trajectory_id",
    "policy_version",
    "prompt_token_ids",
    "response_token_ids",
    "loss_mask",
    "logprobs",
    "reward",
    "advantages",
    "rewards",
    "sampled_steps",
    "sampled_starts",
    "sampled_ends",
    *AGE_COLUMNS,
    *METRIC_COLUMNS,
    *PAIR_COLUMNS,
)
"""Columns of the data file. ``session`` numbers the episodes of a group, ``row_number`` the rows of an episode.
``loss_mask``, ``advantages`` (null for sft, dpo and ppo) and ``rewards`` (ppo alone) are parallel to
``response_token_ids``. dpo: ``pair_id``
numbers the pairs and ``side`` is a ``dataset_pairs.Side``; a row occurs once for each pair of its episode."""

TokenizerOf = Callable[[str], str | None]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = ("since", "until", "ended_before")
"""Parameters of the query that are times."""
_FOREVER: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""ClickHouse's times with nanoseconds end in 2262."""


def export_dataset(
    store: Store,
    spec: JobSpec,
    base: BaseModelFacts,
    *,
    tokenizer_of: TokenizerOf,
    job_id: str,
    folder: Path,
    held_out_share: float = 0.0,
    consumed: Sequence[Training] = (),
) -> Manifest:
    """Write the rows that ``spec`` selects, and their manifest, into the job's folder.

    Args:
        store: Where the rows are.
        spec: Of the job.
        base: The model that is trained.
        tokenizer_of: Fingerprint of the tokenizer of a policy version; None for a version that the registry lacks.
        job_id: Of the job.
        folder: Of the job.
        held_out_share: Share of the groups that go into a file of their own, for the gate after the stage.
        consumed: Earlier trainings of the job's schedule, whose episodes are not trained on again.

    Raises:
        ConfigurationError: There is no such data set.
        JobError: No row can be trained on; the message has the counts by reason.
        StoreError: ClickHouse is unreachable.
    """
    now = datetime.now(UTC)
    data_set = find_data_set(store, spec.episodes.data_set) if spec.episodes.data_set else None
    if data_set is not None:
        spec = spec.changed(data_set=data_set.reference)
    selection = select_dataset(
        store, spec, base, tokenizer_of, held_out_share=held_out_share, consumed=consumed, now=now
    )
    if not selection.row_tally.accepted:
        raise no_rows_error(selection, spec, job_id)
    data_path = folder / DATA_NAME
    selection.rows.select(COLUMNS).write_parquet(data_path)
    if selection.held_out is not None:
        selection.held_out.select(COLUMNS).write_parquet(folder / HELD_OUT_NAME)
    manifest = _manifest(
        selection, spec, base, job_id=job_id, data_sha256=sha256_of(data_path), consumed=consumed, now=now
    )
    if data_set is not None:
        manifest = manifest.model_copy(update={"data_set": data_set.reference, "data_set_episodes": data_set.episodes})
    pin(store, [(episode.episode_id, episode.revision) for episode in (*manifest.pinned, *manifest.held_out)])
    write_atomically(folder / MANIFEST_NAME, manifest.model_dump_json(indent=1))
    return manifest


def select_dataset(
    store: Store,
    spec: JobSpec,
    base: BaseModelFacts,
    tokenizer_of: TokenizerOf,
    *,
    held_out_share: float = 0.0,
    consumed: Sequence[Training] = (),
    now: datetime | None = None,
) -> Selection:
    """Return the rows that ``spec`` selects now, and the counts of the others; writes nothing.

    With ``consumed`` the episodes of these trainings are left out; with a ``replay_ratio`` they count as episodes that
    the base learned from, so that the ratio decides.

    Raises:
        ConfigurationError: There is no such data set.
        JobError: The selector of ``spec`` cannot be used, the loss under the base cannot be computed, or there is one
            group and a share of the groups is to be held out.
        StoreError: ClickHouse is unreachable.
    """
    now = now or datetime.now(UTC)
    if spec.episodes.data_set:
        spec = spec.changed(data_set=find_data_set(store, spec.episodes.data_set).reference)
    parameters: dict[str, Any] = query_parameters(spec, consumed, now)
    parameters |= {name: datetime.fromisoformat(parameters[name]) for name in _TIMES}
    frame = store.query(QUERY, **parameters)
    rules = rules_for(spec, base, tokenizers_of(frame, tokenizer_of))
    rules = rules._replace(strategies=_strategies(store, spec, base, consumed))
    recipe = spec.recipe
    if isinstance(recipe, RendersText):
        renderer = Renderer(base.path)
        episodes = with_rendered_rows(store, frame, renderer, recipe.tokens, is_of_the_base(rules))
        dialogs = dialog_rows(_dialogs(recipe), renderer, episodes.schema, seed=spec.optimiser.seed, now=now)
        rows = pl.concat([episodes, dialogs])
        if isinstance(recipe, Imitation) and recipe.corrections and recipe.tokens is not Tokens.CAPTURED:
            rows = pl.concat([rows, correction_rows(store, episodes, renderer)])
    else:
        rows = frame.with_columns(source=pl.lit(RowSource.CAPTURED.value))
    selection = select_rows(with_ages(rows, base.lineage, now), rules)
    return hold_out(selection, recipe, share=held_out_share, seed=spec.optimiser.seed)


def _strategies(store: Store, spec: JobSpec, base: BaseModelFacts, consumed: Sequence[Training]) -> DataStrategies:
    learned = (*base.trainings, *consumed)
    return DataStrategies(
        min_pass_rate=spec.episodes.min_pass_rate,
        max_pass_rate=spec.episodes.max_pass_rate,
        curriculum=spec.episodes.curriculum,
        coreset=spec.episodes.coreset,
        coreset_share=spec.episodes.coreset_share,
        coreset_size=spec.episodes.coreset_size,
        replay_ratio=spec.episodes.replay_ratio,
        seed=spec.optimiser.seed,
        trained_episodes=trained_episodes(store, learned) if spec.episodes.replay_ratio is not None else frozenset(),
        row_losses=partial(base_losses, base, spec.run.device),
    )


def query_parameters(
    spec: JobSpec, consumed: Sequence[Training] = (), now: datetime | None = None
) -> dict[str, JsonValue]:
    """Return the parameters of the query, as the manifest has them.

    Args:
        spec: Of the job.
        consumed: Earlier trainings of its schedule.
        now: The time that ``commit_minutes`` are counted back from; None is now.
    """
    left_out = consumed if spec.episodes.replay_ratio is None else ()
    committed = (now or datetime.now(UTC)) - timedelta(minutes=spec.episodes.commit_minutes)
    return {
        "ended_before": (committed if spec.episodes.commit_minutes else _FOREVER).isoformat(),
        "consumed_jobs": [training.job_id for training in left_out],
        "consumed_steps": [training.last_step for training in left_out],
        "task_ids": list(spec.episodes.task_ids),
        "task_prefix": spec.episodes.task_prefix,
        "since": (spec.episodes.since_utc or _EPOCH).isoformat(),
        "until": (spec.episodes.until_utc or _FOREVER).isoformat(),
        "services": list(spec.episodes.services),
        "agents": list(spec.episodes.agents),
        "models": list(spec.episodes.models),
        "failure_classes": list(spec.episodes.failure_classes),
        "without_failure_classes": list(spec.episodes.without_failure_classes),
        "marks": list(spec.episodes.marks),
        "without_marks": list(spec.episodes.without_marks),
        "sample_rate": spec.episodes.sample_rate,
        "seed": spec.optimiser.seed,
        "policy_version": spec.episodes.policy_version,
        "data_set": spec.episodes.data_set,
        "max_episodes": spec.episodes.max_episodes,
    }


def tokenizers_of(frame: pl.DataFrame, tokenizer_of: TokenizerOf) -> dict[str, str]:
    """Return the fingerprint of each policy version in ``frame`` that the registry knows."""
    versions = frame["policy_versions"].explode().drop_nulls().unique().to_list()
    return {version: tokenizer for version in versions if (tokenizer := tokenizer_of(version)) is not None}


def rules_for(spec: JobSpec, base: BaseModelFacts, tokenizers: Mapping[str, str]) -> Rules:
    """Return the rules that ``spec`` and its base model set."""
    return Rules(
        recipe=spec.recipe,
        max_prompt_tokens=spec.episodes.max_prompt_tokens,
        max_response_tokens=spec.episodes.max_response_tokens,
        context_tokens=base.context_tokens,
        vocabulary_size=base.vocabulary_size,
        tokenizer=base.tokenizer,
        tokenizers=tokenizers,
        max_age_versions=spec.episodes.max_age_versions,
        max_age_days=spec.episodes.max_age_days,
        policy_version=spec.episodes.policy_version,
        seed=spec.optimiser.seed,
        selector=load_selector(spec.episodes.selector) if spec.episodes.selector else None,
    )


def rows_by_source(rows: pl.DataFrame) -> dict[str, int]:
    """Return the number of rows of each :class:`~spanloop.training.spec.row_source.RowSource`."""
    distinct = rows.unique("trajectory_id")  # with dpo a row occurs once for each of its pairs
    return {str(source): int(count) for source, count in distinct["source"].value_counts(sort=True).rows()}


def batch_units(recipe: Recipe, rows: pl.DataFrame) -> int:
    """Return the number of what batches are made of: prompt groups (policy gradients), pairs (dpo) or rows (sft)."""
    match recipe.learns_from:
        case LearnsFrom.ROWS:
            return rows["group_id"].n_unique()
        case LearnsFrom.PAIRS:
            return rows["pair_id"].n_unique()
        case LearnsFrom.TEXT:
            return rows.height


def _dialogs(recipe: Recipe) -> tuple[str, ...]:
    return recipe.dialogs if isinstance(recipe, Imitation) else ()


def _manifest(
    selection: Selection,
    spec: JobSpec,
    base: BaseModelFacts,
    *,
    job_id: str,
    data_sha256: str,
    consumed: Sequence[Training],
    now: datetime,
) -> Manifest:
    rows = selection.rows
    prompt_tokens, response_tokens = rows["prompt_token_ids"].list.len(), rows["response_token_ids"].list.len()
    episodes = rows.unique("episode_id").sort("episode_id")
    sided_rows = rows.unique(("episode_id", "row_number", "side"))
    rewards = [float(value) for value in episodes["reward"].drop_nulls()]
    units = batch_units(spec.recipe, rows)
    return Manifest(
        job_id=job_id,
        kind=spec.kind,
        created_at=datetime.now(UTC),
        base=base.reference,
        query=QUERY,
        query_parameters=query_parameters(spec, consumed, now),
        rows=Count.of(selection.row_tally),
        out_of_range=selection.out_of_range,
        episodes=Count.of(selection.episode_tally),
        groups=Count.of(selection.group_tally),
        strategies=selection.reports,
        constrained_by=dict(selection.constrained_by),
        untrainable_calls=dict(selection.untrainable_calls),
        prompt_groups=units if spec.recipe.learns_from is LearnsFrom.ROWS else 0,
        temperature=selection.temperature,
        sources=rows_by_source(rows),
        dialogs=dialog_file_facts(_dialogs(spec.recipe)),
        pairs=units if spec.recipe.learns_from is LearnsFrom.PAIRS else 0,
        masked_steps=int(sided_rows["masked_steps"].sum()),
        masked_tokens=int(sided_rows["masked_tokens"].sum()),
        longest_prompt_tokens=_largest(prompt_tokens),
        longest_response_tokens=_largest(response_tokens),
        longest_row_tokens=_largest(prompt_tokens + response_tokens),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        data_sha256=data_sha256,
        pinned=_episodes_of(rows),
        held_out=() if selection.held_out is None else _episodes_of(selection.held_out),
    )


def _episodes_of(rows: pl.DataFrame) -> tuple[PinnedEpisode, ...]:
    """Return the stored episodes of ``rows``; a dialog is none."""
    stored = rows.filter(pl.col("source") != RowSource.DIALOG.value).unique("episode_id").sort("episode_id")
    return tuple(
        PinnedEpisode(episode_id=str(episode), revision=int(revision))
        for episode, revision in stored.select("episode_id", "revision").rows()
    )


def _largest(values: pl.Series) -> int:
    return max(int(value) for value in values)

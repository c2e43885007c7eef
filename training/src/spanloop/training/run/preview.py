"""Preview a training job: what it would train on, how often, and how much memory it needs.

Invariant: a preview writes nothing: no job, no dataset, no pinned revision.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.foundation.cpu_features import computes_bfloat16
from spanloop.foundation.paths import DataDir
from spanloop.store import connect

from ..dataset.export import batch_units, rows_by_source, select_dataset
from ..dataset.strategies.report import StrategyReport
from ..dataset.tally import Tally
from ..models.adapter_versions import weights_version
from ..models.base_model import Training, read_base_model
from ..models.lineage import with_lineage
from ..models.memory_estimate import (
    GpuJobMemory,
    MemoryEstimate,
    MemoryFactors,
    estimate_on_cpu,
    estimate_on_gpus,
    gpu_tokens,
)
from ..models.model_shape import ModelShape, read_shape
from ..models.registry import Registry
from ..spec.choices import Device
from ..spec.defaults import MICRO_BATCH_TOKENS
from ..spec.job_spec import JobSpec
from ..spec.row_source import RowSource
from ..verl_plugin.drift import passes, steps_within
from .planning import accumulated_batch, batch_multiple, batch_size, longest_computed_row

GPU_BYTES: Final = 80_000_000_000
"""The GPU that a preview assumes; the job itself asks its own for the free memory."""


class PreviewMemory(NamedTuple):
    """What a job needs on each device that it may train on."""

    cpu: MemoryEstimate | None
    """None for a job that asks for CUDA."""
    gpus: GpuJobMemory | None
    """None for a job that asks for the CPU."""
    auto_tokens: int
    """``micro_batch_tokens = auto`` where ``GPU_BYTES`` are free; 0 when the job does not fit."""


class Preview(NamedTuple):
    """What a job would do if it started now."""

    base: str
    """``name@version`` that it would train."""
    rows: Tally
    episodes: Tally
    groups: Tally
    """All zero for sft."""
    transitions: int
    """Model calls in accepted rows."""
    prompt_tokens: int
    """Of accepted rows; with dpo a row counts once for each of its pairs, here and below."""
    response_tokens: int
    """Of accepted rows, tool results included."""
    trained_tokens: int
    """Response tokens in the loss."""
    steps: int
    """Fewer than the setting where ``max_passes`` ends the job; 0 when nothing is accepted."""
    batch_size: int
    """Groups (policy gradients), pairs (dpo) or rows (sft) of a step; 0 when nothing is accepted."""
    passes: float
    """How often each group, pair or row is trained on, on average."""
    sources: Mapping[str, int]
    """Accepted rows by where their tokens come from, see ``RowSource``."""
    memory: PreviewMemory
    out_of_range: tuple[str, ...]
    """Ids of episodes that would be rejected as ``reward_out_of_range``."""
    strategies: tuple[StrategyReport, ...]
    """What each data strategy keeps."""
    constrained_by: Mapping[str, int]
    """Sampling parameter → rows rejected for it, as `Selection` has them."""
    untrainable_calls: Mapping[str, int]
    """Reason → model calls of accepted rows that are not in the loss, as `Selection` has them."""


def preview(
    data_dir: DataDir, spec: JobSpec, *, held_out_share: float = 0.0, consumed: Sequence[Training] = ()
) -> Preview:
    """Select the rows of ``spec`` and estimate the job, or a stage of it.

    Args:
        data_dir: The data directory.
        spec: Of the job or the stage.
        held_out_share: Of the stage.
        consumed: Earlier trainings of its schedule, whose episodes are not trained on again.

    Raises:
        JobError: The base model does not exist or cannot be trained.
        StoreError: ClickHouse is unreachable.
    """
    registry = Registry(data_dir)
    version = registry.get(spec.base)
    weights = weights_version(registry, version)
    base = with_lineage(read_base_model(version.reference, weights.path), registry)
    spec = spec.changed(policy_version=registry.exact(spec.episodes.policy_version))
    with connect(data_dir) as store:
        selection = select_dataset(
            store, spec, base, registry.tokenizer_fingerprint, held_out_share=held_out_share, consumed=consumed
        )
    rows = selection.rows
    prompts, responses = rows["prompt_token_ids"].list.len(), rows["response_token_ids"].list.len()
    units = batch_units(spec.recipe, rows)
    multiple = batch_multiple(spec)
    batch = batch_size(units, accumulated_batch(spec), multiple) if units >= multiple else 0
    steps = steps_within(spec.optimiser.steps, batch, units, spec.optimiser.max_passes) if batch else 0
    longest = longest_computed_row(spec, _largest(prompts + responses))
    return Preview(
        base=version.reference,
        rows=selection.row_tally,
        episodes=selection.episode_tally,
        groups=selection.group_tally,
        transitions=_transitions(rows),
        prompt_tokens=int(prompts.sum()),
        response_tokens=int(responses.sum()),
        trained_tokens=int(rows["loss_mask"].list.sum().sum()),
        steps=steps,
        batch_size=batch,
        passes=passes(steps, batch, units) if batch else 0.0,
        sources=rows_by_source(rows),
        memory=preview_memory(spec, read_shape(weights.path), longest),
        out_of_range=selection.out_of_range,
        strategies=selection.reports,
        constrained_by=selection.constrained_by,
        untrainable_calls=selection.untrainable_calls,
    )


def preview_memory(spec: JobSpec, shape: ModelShape, longest_row_tokens: int) -> PreviewMemory:
    """Estimate the memory of ``spec`` on each device that it may train on."""
    factors = MemoryFactors.of(spec)
    tokens = spec.optimiser.micro_batch_tokens and max(spec.optimiser.micro_batch_tokens, longest_row_tokens)
    cpu = gpus = None
    if spec.run.device is not Device.CUDA:
        cpu_tokens = tokens or max(MICRO_BATCH_TOKENS, longest_row_tokens)
        bfloat16 = computes_bfloat16()
        cpu = estimate_on_cpu(shape, factors, micro_batch_tokens=cpu_tokens, bfloat16=bfloat16)
    auto_tokens = gpu_tokens(shape, factors, free_bytes=GPU_BYTES)
    if spec.run.device is not Device.CPU:
        gpu_pass = tokens or max(auto_tokens, longest_row_tokens)
        gpus = estimate_on_gpus(shape, factors, micro_batch_tokens=gpu_pass)
    return PreviewMemory(cpu, gpus, auto_tokens)


def _transitions(rows: pl.DataFrame) -> int:
    stored = rows.filter(pl.col("source") != RowSource.DIALOG.value).unique("trajectory_id")
    # rows of earlier converters do not say which steps they hold
    return int(stored.select(pl.col("sampled_steps").list.len().fill_null(0).clip(lower_bound=1).sum()).item())


def _largest(values: pl.Series) -> int:
    return max((int(value) for value in values), default=0)

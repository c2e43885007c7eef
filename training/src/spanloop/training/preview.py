"""Preview a training job: what it would train on, how often, and how much memory it needs.

Invariant: a preview writes nothing: no job, no dataset, no pinned revision.
"""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from spanloop.cpu_features import computes_bfloat16
from spanloop.datadir import DataDir
from spanloop.semconv.enums import JobKind
from spanloop.store import connect

from .base_model import read_base_model
from .dataset import batch_units, rows_by_source, select_dataset
from .dataset_selection import Tally
from .drift import passes, steps_within
from .job_spec import Device, JobSpec
from .memory_estimate import MemoryEstimate, estimate_memory, read_shape
from .planning import batch_multiple, batch_size, micro_batch_tokens
from .registry import Registry
from .row_age import lineage


class Preview(NamedTuple):
    """What a job would do if it started now."""

    base: str
    """``name@version`` that it would train."""
    rows: Tally
    episodes: Tally
    groups: Tally
    """All zero for sft."""
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
    memory: MemoryEstimate


def preview(data_dir: DataDir, spec: JobSpec, *, held_out_share: float = 0.0) -> Preview:
    """Select the rows of ``spec`` and estimate the job, or a stage of it.

    Raises:
        JobError: The base model does not exist or cannot be trained.
        StoreError: ClickHouse is unreachable.
    """
    registry = Registry(data_dir)
    version = registry.get(spec.base)
    base = read_base_model(version.reference, version.path)
    base = base._replace(lineage=lineage(registry, version.reference))
    with connect(data_dir) as store:
        selection = select_dataset(store, spec, base, registry.tokenizer_fingerprint, held_out_share=held_out_share)
    rows = selection.rows
    prompts, responses = rows["prompt_token_ids"].list.len(), rows["response_token_ids"].list.len()
    units = batch_units(spec.kind, rows)
    multiple = batch_multiple(spec)
    batch = batch_size(units, spec.batch_groups, multiple) if units >= multiple else 0
    steps = steps_within(spec.steps, batch, units, spec.max_passes) if batch else 0
    is_cuda = spec.device is Device.CUDA
    memory = estimate_memory(
        read_shape(version.path),
        micro_batch_tokens=micro_batch_tokens(spec, _largest(prompts + responses)),
        bfloat16=is_cuda or computes_bfloat16(),
        recomputes=is_cuda,
        has_reference=spec.kl_coefficient > 0,
        ranks=spec.ranks,
        lora_rank=spec.lora_rank,
        has_critic=spec.kind is JobKind.PPO,
    )
    return Preview(
        base=version.reference,
        rows=selection.row_tally,
        episodes=selection.episode_tally,
        groups=selection.group_tally,
        prompt_tokens=int(prompts.sum()),
        response_tokens=int(responses.sum()),
        trained_tokens=int(rows["loss_mask"].list.sum().sum()),
        steps=steps,
        batch_size=batch,
        passes=passes(steps, batch, units) if batch else 0.0,
        sources=rows_by_source(rows),
        memory=memory,
    )


def _largest(values: pl.Series) -> int:
    return max((int(value) for value in values), default=0)

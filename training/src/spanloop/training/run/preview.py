"""Preview a training job: what it would train on, how often, and how much memory it needs.

Invariant: a preview writes nothing: no job, no dataset, no pinned revision.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.converters.tokens.trajectories import shared_prompt_tokens
from spanloop.foundation.cpu_features import computes_bfloat16
from spanloop.foundation.paths import DataDir
from spanloop.store import connect

from ..dataset.export import batch_units, rows_by_source, select_dataset
from ..dataset.rejections import out_of_range_text
from ..dataset.strategies.report import StrategyReport
from ..dataset.tally import Tally, counts_text
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
from ..models.time_estimate import LARGE_CARD, SMALL_CARD, Card, StepWork, local_card, step_seconds
from ..spec.choices import Device
from ..spec.defaults import MICRO_BATCH_TOKENS
from ..spec.job_spec import JobSpec
from ..spec.presets import Preset, preset_values
from ..spec.row_source import RowSource
from ..spec.stages import stages_of
from ..verl_plugin.drift import passes, steps_within
from .planning import accumulated_batch, batch_multiple, batch_size, longest_computed_row

_GB: Final = 1e9
_PRESET_CARDS: Final = {Preset.GPU24: SMALL_CARD, Preset.GPU: LARGE_CARD, Preset.GPUS8: LARGE_CARD}


class PreviewMemory(NamedTuple):
    """What a job needs on each device that it may train on."""

    cpu: MemoryEstimate | None
    """None for a job that trains on a GPU."""
    gpus: GpuJobMemory | None
    """None for a job that trains on the CPU."""
    cpu_tokens: int
    """Tokens in a pass on a CPU."""
    auto_tokens: int
    """``micro_batch_tokens = auto`` where all of :attr:`card` is free; 0 when the job does not fit, or without a
    card."""
    card: Card | None
    """The GPU that trains, see :func:`training_card`."""


class PreviewTime(NamedTuple):
    """How long a job trains on :attr:`PreviewMemory.card`."""

    step_s: float
    hours: float
    """Of all steps."""


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
    time: PreviewTime | None
    """None without a GPU whose speed is known, and when nothing is accepted."""
    out_of_range: tuple[str, ...]
    """Ids of episodes that would be rejected as ``reward_out_of_range``."""
    strategies: tuple[StrategyReport, ...]
    """What each data strategy keeps."""
    constrained_by: Mapping[str, int]
    """Sampling parameter → rows rejected for it, as `Selection` has them."""
    untrainable_calls: Mapping[str, int]
    """Reason → model calls of accepted rows that are not in the loss, as `Selection` has them."""


class PreviewedStage(NamedTuple):
    """The preview of a stage in words."""

    title: str
    """Empty for a job of one stage."""
    heading: str
    """Recipe and base."""
    rows: tuple[tuple[str, str], ...]
    """A name and a text each."""
    preview: Preview


def preview_stages(data_dir: DataDir, spec: JobSpec) -> Iterator[PreviewedStage]:
    """Yield the preview of each stage of a job, of the rows that are stored now; it raises as :func:`preview`."""
    for stage in stages_of(spec):
        result = preview(data_dir, stage.spec, held_out_share=stage.held_out_share)
        yield PreviewedStage(
            title=stage.title if stage.total > 1 else "",
            heading=f"{stage.spec.kind} from {result.base}",
            rows=tuple(_rows(stage.spec, result)),
            preview=result,
        )


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
    folder = registry.folder(weights_version(registry, version))
    base = with_lineage(read_base_model(version.reference, folder), registry)
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
    shape = read_shape(folder)
    longest = longest_computed_row(spec, _largest(prompts + responses))
    memory = preview_memory(spec, shape, longest, training_card(spec))
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
        memory=memory,
        time=_time(spec, shape, rows, memory.card, steps=steps, units=units, batch=batch),
        out_of_range=selection.out_of_range,
        strategies=selection.reports,
        constrained_by=selection.constrained_by,
        untrainable_calls=selection.untrainable_calls,
    )


def training_card(spec: JobSpec) -> Card | None:
    """Return the GPU that would train ``spec``: this host's, else the one that the preset names.

    None where the CPU trains, and for a job on a running Ray cluster or on CUDA whose GPU is not known here.
    """
    if spec.run.device is Device.CPU:
        return None
    card = None if spec.run.ray_address else local_card()
    return card or _PRESET_CARDS.get(spec.run.preset)


def preview_memory(spec: JobSpec, shape: ModelShape, longest_row_tokens: int, card: Card | None) -> PreviewMemory:
    """Estimate the memory of ``spec`` on each device that it may train on; ``card`` is that of `training_card`."""
    factors = MemoryFactors.of(spec)
    tokens = spec.optimiser.micro_batch_tokens and max(spec.optimiser.micro_batch_tokens, longest_row_tokens)
    cpu_tokens = tokens or max(MICRO_BATCH_TOKENS, longest_row_tokens)
    auto_tokens = gpu_tokens(shape, factors, free_bytes=card.memory_bytes) if card else 0
    is_elsewhere = bool(spec.run.ray_address)
    cpu = gpus = None
    if spec.run.device is Device.CPU or (spec.run.device is Device.AUTO and (card is None or is_elsewhere)):
        bfloat16 = computes_bfloat16()
        cpu = estimate_on_cpu(shape, factors, micro_batch_tokens=cpu_tokens, bfloat16=bfloat16)
    if spec.run.device is Device.CUDA or card is not None or (spec.run.device is Device.AUTO and is_elsewhere):
        gpu_pass = tokens or max(auto_tokens if card else MICRO_BATCH_TOKENS, longest_row_tokens)
        gpus = estimate_on_gpus(shape, factors, micro_batch_tokens=gpu_pass)
    return PreviewMemory(cpu, gpus, cpu_tokens, auto_tokens, card)


def _time(
    spec: JobSpec, shape: ModelShape, rows: pl.DataFrame, card: Card | None, *, steps: int, units: int, batch: int
) -> PreviewTime | None:
    """Estimate the time of all steps, from the mean over the accepted rows."""
    if card is None or not card.peak_flops or not steps:
        return None
    tokens = rows.select(pl.col("prompt_token_ids").list.len() + pl.col("response_token_ids").list.len()).to_series()
    # the engine computes more prefixes once: those of several groups too
    shared = rows.select("group_id", tokens=shared_prompt_tokens(rows["group_id"], rows["prompt_token_ids"]))
    groups = shared.group_by("group_id").agg(pl.len().alias("rows"), pl.first("tokens"))
    repeated = int(groups.select(((pl.col("rows") - 1) * pl.col("tokens")).sum()).item() or 0)
    share = batch / units
    work = StepWork(
        computed_tokens=share * (int(tokens.sum()) - repeated),
        row_tokens=int(tokens.sum()) / rows.height,
        trained_tokens=share * int(rows["loss_mask"].list.sum().sum()),
    )
    step_s = step_seconds(shape, work, spec, card)
    return PreviewTime(step_s, step_s * steps / 3600)


def _transitions(rows: pl.DataFrame) -> int:
    stored = rows.filter(pl.col("source") != RowSource.DIALOG.value).unique("trajectory_id")
    # rows of earlier converters do not say which steps they hold
    return int(stored.select(pl.col("sampled_steps").list.len().fill_null(0).clip(lower_bound=1).sum()).item())


def _largest(values: pl.Series) -> int:
    return max((int(value) for value in values), default=0)


def preset_text(spec: JobSpec) -> str:
    """Return the settings that the preset gives, with their values in this job; empty where it gives none."""
    settings = spec.model_dump(mode="json")
    given = [
        f"{name} {settings[name]}" + ("" if settings[name] == value else f" (set here; the preset has {value})")
        for name, value in preset_values(spec.run.preset).items()
    ]
    return f"{spec.run.preset}: {', '.join(given)}" if given else ""


def _rows(spec: JobSpec, result: Preview) -> Iterator[tuple[str, str]]:
    yield "rows", str(result.rows)
    if result.constrained_by:
        yield "constrained by", counts_text(result.constrained_by)
    if result.untrainable_calls:
        yield "calls left out", counts_text(result.untrainable_calls)
    yield "tokens of the rows", ", ".join(f"{count:,} {source}" for source, count in result.sources.items()) or "none"
    yield "episodes", str(result.episodes)
    if result.out_of_range:
        yield "out of range", out_of_range_text(result.out_of_range)
    if spec.recipe.has_groups:
        yield "groups", str(result.groups)
    for report in result.strategies:
        yield report.strategy, str(report).removeprefix(f"{report.strategy} ")
    tokens = f"{result.trained_tokens:,} trained of {result.response_tokens:,} in responses"
    yield "tokens", f"{tokens}, {result.prompt_tokens:,} in prompts"
    yield "steps", _steps_text(spec, result)
    yield "device", _device_text(spec, result.memory.card)
    yield from _memory_rows(result.memory, is_automatic=spec.optimiser.micro_batch_tokens is None)
    card = result.memory.card
    if result.time is not None and card is not None:
        basis = f"measured on it: {card.measured}" if card.measured else "not measured on it, by its data sheet"
        yield "time", f"about {result.time.step_s:.1f} s a step, {result.time.hours:.2f} h on {card.name} ({basis})"


def _steps_text(spec: JobSpec, result: Preview) -> str:
    text = (
        f"{result.steps:,} of {result.batch_size:,} {spec.recipe.batch_unit}: {result.passes:.2f} passes over the data"
    )
    if 0 < result.steps < spec.optimiser.steps:
        left_out = spec.optimiser.steps - result.steps
        text += f" (max_passes of {spec.optimiser.max_passes:g} leaves {left_out:,} out)"
    return text


def _device_text(spec: JobSpec, card: Card | None) -> str:
    if spec.run.device is Device.CPU:
        return "CPU"
    if card is not None:
        return card.name
    if spec.run.ray_address:
        return f"that of the Ray cluster {spec.run.ray_address}"
    return "CPU, as this host has no GPU" if spec.run.device is Device.AUTO else "CUDA; this host has no GPU"


def _memory_rows(memory: PreviewMemory, *, is_automatic: bool) -> Iterator[tuple[str, str]]:
    if memory.cpu is not None:
        yield "memory", _estimate(memory.cpu)
    if memory.gpus is not None:
        yield "on each GPU", _estimate(memory.gpus.gpu)
        yield "GPU's host", _estimate(memory.gpus.host)
    if is_automatic:
        yield "auto", " or ".join(_auto_texts(memory))


def _auto_texts(memory: PreviewMemory) -> Iterator[str]:
    if memory.cpu is not None:
        yield f"{memory.cpu_tokens:,} tokens in a pass on the CPU"
    if memory.card is not None:
        size = f"{memory.card.name} with {memory.card.memory_bytes / _GB:.0f} GB free"
        yield f"{memory.auto_tokens:,} tokens in a pass on {size}" if memory.auto_tokens else f"does not fit on {size}"
    elif memory.gpus is not None:
        yield "as many tokens in a pass as the GPU has memory for"


def _estimate(memory: MemoryEstimate) -> str:
    parts = ((name.replace("_", " "), size_bytes / _GB) for name, size_bytes in memory._asdict().items() if size_bytes)
    return f"about {memory.total / _GB:.2f} GB: {', '.join(f'{name} {size:.2f}' for name, size in parts)}"

"""Forward and backward of a model alone: a prefix tree, merged rows, and one row for each turn.

All three use the engine's packing and kernels; they differ in what is computed repeatedly. The last two are packed
without sharing, so they use flash kernels without a mask.
"""

import math
import statistics
import time
from typing import Any, Final, NamedTuple

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from spanloop.training.verl_plugin.engine.attention_kernels import kernel_for
from spanloop.training.verl_plugin.engine.attention_plan import plan_attention
from spanloop.training.verl_plugin.engine.fused_layers import fuse_layers
from spanloop.training.verl_plugin.engine.kept_activations import KeptActivations, free_bytes
from spanloop.training.verl_plugin.engine.packed_batch import PackedBatch, micro_batches, pack_batch
from spanloop.training.verl_plugin.engine.token_logprobs import token_logprobs
from spanloop.training.verl_plugin.engine.tree_attention import ATTENTION, tree_attention

from .models import Size
from .rows import Rows

PEAK_FLOPS: Final = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "4090": 165e12, "3090": 71e12, "L4": 121e12}
"""Dense bfloat16 operations a second by the name of the card, from its vendor's data sheet."""
_WARM_ROWS: Final = 2


class Computed(NamedTuple):
    """Forward and backward over all rows."""

    seconds: float
    tokens: int
    """Tokens that the model computes."""
    row_tokens: int
    """Tokens of the rows, each common prefix counted for each."""
    passes: int
    mfu: float
    """Share of the card's peak: 6 operations for each parameter of the layers and computed token, those of attention's
    visible pairs, and the head's for the positions that the loss needs; recomputed activations are not counted. 0 for
    an unknown card."""
    hfu: float
    """The same with recomputed matrix products."""
    recomputed_layers: int
    """Of the last pass."""
    peak_gb: float
    """Largest memory that torch allocated; 0 on a CPU."""
    loss: float


def peak_flops(device: torch.device) -> float:
    """Return the peak of the card's bfloat16 matrix units; 0 for an unknown one."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), 0.0)


class Work(NamedTuple):
    """What forward and backward over rows take."""

    tokens: int
    """Computed tokens."""
    flops: float
    """Operations, without recomputed activations."""
    performed_flops: float
    """With the recomputation of the layers' matrix products."""


def batch_work(batch: PackedBatch, size: Size, recomputed_layers: int = 0) -> Work:
    """Return the work of forward and backward over a pack, some of whose layers recompute their activations."""
    # a token sees what lies above it in the tree, and itself
    pairs = sum(
        (part.end - part.begin) * ((part.end - part.begin + 1) / 2 + part.subtree_end - part.end)
        for part in batch.layout.segments
    )
    matrices = 6 * (size.layer_parameters * batch.layout.tokens + size.head_parameters * len(batch.logits_at))
    attention = 12 * size.layers * size.hidden * pairs
    recomputed = 2 * size.layer_parameters * batch.layout.tokens * recomputed_layers / size.layers
    return Work(batch.layout.tokens, matrices + attention, matrices + attention + recomputed)


def packed_work(rows: Rows, size: Size, limit_tokens: int, *, share: bool, recomputed_layers: int = 0) -> Work:
    """Return the work of rows in passes of at most ``limit_tokens``."""
    parts = micro_batches(rows.sequences, limit_tokens, share=share)
    packs = (
        pack_batch([rows.sequences[i] for i in part], [rows.masks[i] for i in part], share=share) for part in parts
    )
    return Work(*map(sum, zip(*(batch_work(pack, size, recomputed_layers) for pack in packs), strict=True)))


class Passes:
    """Measures one model.

    Args:
        model: Of :func:`~.models.make_model`; it computes packed rows afterwards, with checkpointed activations.
        size: Its shape.
        limit_tokens: Packed tokens of one pass.
    """

    def __init__(self, model: Any, size: Size, limit_tokens: int) -> None:
        ALL_ATTENTION_FUNCTIONS.register(ATTENTION, tree_attention)
        model.set_attn_implementation(ATTENTION)
        model.train()
        model.config.use_cache = False
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._model = model
        self._size = size
        self._limit = limit_tokens
        self._device = next(model.parameters()).device
        self.unfused = fuse_layers(model, self._device)
        self.kept = KeptActivations(model)
        self._recomputed = 0

    def measure(self, rows: Rows, *, share: bool, repetitions: int = 1) -> Computed:
        """Return the median over ``repetitions``, after a pass that warms up; leaves the gradients of the last."""
        self._run(rows.first(_WARM_ROWS), share=share)
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        runs = [self._run(rows, share=share) for _ in range(repetitions)]
        return runs[-1]._replace(seconds=statistics.median(run.seconds for run in runs))

    def free(self) -> None:
        """Give the model's memory back; nothing can be measured afterwards."""
        self._model = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def gradients(self) -> list[torch.Tensor]:
        """Return copies of the gradients."""
        return [parameter.grad.clone() for parameter in self._model.parameters() if parameter.grad is not None]

    def difference(self, expected: list[torch.Tensor]) -> float:
        """Return the norm of the gradients' difference to ``expected``, relative to the norm of these."""
        squares = [0.0, 0.0]
        for one, other in zip(self.gradients(), expected, strict=True):
            squares[0] += float((one.float() - other.float()).square().sum())
            squares[1] += float(other.float().square().sum())
        return math.sqrt(squares[0] / squares[1])

    def _run(self, rows: Rows, *, share: bool) -> Computed:
        self._model.zero_grad(set_to_none=True)
        trained = sum(int(mask.sum()) for mask in rows.masks)
        loss, performed = 0.0, 0.0
        parts = micro_batches(rows.sequences, self._limit, share=share)
        self._synchronize()
        started_s = time.perf_counter()
        for part in parts:
            batch = pack_batch([rows.sequences[i] for i in part], [rows.masks[i] for i in part], share=share)
            loss += self._forward_backward(batch, trained)
            performed += batch_work(batch, self._size, self._recomputed).performed_flops
        self._synchronize()
        seconds = time.perf_counter() - started_s
        peak = peak_flops(self._device)
        peak_gb = torch.cuda.max_memory_allocated() / 1e9 if self._device.type == "cuda" else 0.0
        work = packed_work(rows, self._size, self._limit, share=share)
        mfu, hfu = (flops / seconds / peak if peak else 0.0 for flops in (work.flops, performed))
        return Computed(seconds, work.tokens, rows.tokens, len(parts), mfu, hfu, self._recomputed, peak_gb, loss)

    def _free_bytes(self) -> int:
        return free_bytes([], None) if self._device.type == "cuda" else 0

    def _forward_backward(self, batch: PackedBatch, trained: int) -> float:
        longest_run = kernel_for(self._device).longest_run
        self._recomputed = self.kept.choose(batch.layout.tokens, self._free_bytes())
        plan = plan_attention(batch.layout, self._device, longest_run=longest_run, recomputed_layers=self._recomputed)
        batch = batch.to(self._device)
        hidden = self._model.model(
            input_ids=batch.input_ids,
            position_ids=batch.position_ids,
            attention_mask=None,
            use_cache=False,
            attention_plan=plan,
        ).last_hidden_state[0]
        logprobs = token_logprobs(
            hidden[batch.logits_at], self._model.lm_head.weight, batch.rows, batch.labels
        ).logprobs
        loss = -logprobs.sum() / trained
        loss.backward()
        return float(loss.detach())

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def compare_layouts(passes: Passes, merged: Rows, turns: Rows | None, repetitions: int) -> dict[str, Any]:
    """Measure the layouts and return their figures, ratios, and the difference of their gradients.

    Args:
        passes: Of the model.
        merged: One or several rows for each attempt.
        turns: The same as one row for each turn; None leaves it out.
        repetitions: Of the tree and of merged rows.
    """
    figures: dict[str, Any] = {}
    expected: list[torch.Tensor] = []
    layouts = [("merged", merged, False, repetitions), ("tree", merged, True, repetitions)]
    if turns is not None:
        layouts.append(("turns", turns, False, 1))
    for name, rows, share, count in layouts:
        computed = passes.measure(rows, share=share, repetitions=count)
        figures[name] = computed._asdict()
        if expected:
            figures[name]["gradient_difference"] = passes.difference(expected)
        else:
            expected = passes.gradients()
    for name in sorted(figures.keys() & {"merged", "turns"}):
        figures[f"{name}_by_tree"] = figures[name]["seconds"] / figures["tree"]["seconds"]
        figures[f"{name}_by_tree_tokens"] = figures[name]["tokens"] / figures["tree"]["tokens"]
    return figures

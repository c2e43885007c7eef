# pyright: basic
"""The engine within verl's jobs, in this process: what it computes does not depend on how rows are packed."""

import importlib
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from spanloop.training.models.memory_estimate import pass_memory
from spanloop.training.models.model_shape import read_shape
from spanloop.training.verl_plugin.engine import (
    attention_kernels,
    engine_choice,
    kept_activations,
    packed_batch,
    prefix_tree,
    tree_attention,
)

from ..debug_training import debug_plan, train_here, write_dataset

RECIPES: dict[str, dict[str, Any]] = {
    "dr_grpo": {},
    "gspo": {"kl_coefficient": 0.1},
    "ppo": {},
    "sft": {},
    "dpo": {},
    "dr_grpo with an adapter": {"lora_rank": 4},
}


def gradients(module: Any) -> torch.Tensor:
    """All gradients of an FSDP2 model as one vector."""
    parts = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return torch.cat([getattr(part, "full_tensor", lambda part=part: part)().flatten() for part in parts]).clone()


def assert_close(computed: torch.Tensor, expected: torch.Tensor) -> None:
    """The norm of the difference is below 1e-5 of the gradient's."""
    assert expected.norm() > 0
    assert (computed - expected).norm() <= 1e-5 * expected.norm()


@pytest.fixture(scope="module")
def engine() -> Any:
    """The engine's class; verl warns of engines that are not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("spanloop.training.verl_plugin.engine.tree_engine").TreeEngine


@pytest.fixture(scope="module")
def unchanged_gradient(
    engine: Any, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], torch.Tensor]:
    """Compute the gradient of a step of two groups, by their number of episodes, before a test changes the engine."""

    @cache
    def compute(episodes: int) -> torch.Tensor:
        folder = tmp_path_factory.mktemp("unchanged")
        write_dataset(tiny_model, folder, groups=2, episodes=episodes)
        with pytest.MonkeyPatch.context() as recording:
            recorded = record_gradients(engine, recording)
            train_here(debug_plan(tiny_model, folder, steps=1))
        (gradient,) = recorded["PolicyTreeEngine"]
        return gradient

    return compute


def record_gradients(engine: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[torch.Tensor]]:
    """Record the gradients of each update, by the class of the engine."""
    recorded: dict[str, list[torch.Tensor]] = {}
    compute = engine.forward_backward_batch

    def recording(self: Any, data: Any, loss_function: Any, forward_only: bool = False) -> Any:  # noqa: FBT001, FBT002
        result = compute(self, data, loss_function, forward_only)
        if not forward_only:
            recorded.setdefault(type(self).__name__, []).append(gradients(self.module))
        return result

    monkeypatch.setattr(engine, "forward_backward_batch", recording)
    return recorded


@pytest.mark.parametrize("name", RECIPES)
def test_trees_merged_rows_and_passes_of_one_row_have_the_same_gradient(
    name: str, engine: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first update computes its batch in each way."""
    recorded = record_gradients(engine, monkeypatch)
    compute = engine.forward_backward_batch

    def three_times(self: Any, data: Any, loss_function: Any, forward_only: bool = False) -> Any:  # noqa: FBT001, FBT002
        if not forward_only:
            with monkeypatch.context() as merged:
                merged.setattr(packed_batch, "pack", lambda rows, **_: prefix_tree.pack(rows, share=False))
                compute(self, data, loss_function)
            self.optimizer_zero_grad()
            self._largest_pass = 1
            compute(self, data, loss_function)
            self.optimizer_zero_grad()
            self._largest_pass = 0
        return compute(self, data, loss_function, forward_only)

    monkeypatch.setattr(engine, "forward_backward_batch", three_times)
    kind = name.split(maxsplit=1)[0]
    write_dataset(tiny_model, tmp_path, kind=kind, groups=2, episodes=2)
    train_here(debug_plan(tiny_model, tmp_path, kind=kind, steps=1, samples_path=None, **RECIPES[name]))
    assert set(recorded) == {"PolicyTreeEngine", *(["ValueTreeEngine"] if kind == "ppo" else [])}
    for merged, single, tree in recorded.values():
        assert_close(merged, tree)
        assert_close(single, tree)


@pytest.mark.parametrize(
    ("kernel", "call", "resets"), [("_CPU_BACKWARD", 9, True), ("_CPU_FORWARD", 4, True), ("_CPU_BACKWARD", 9, False)]
)
def test_a_pass_that_runs_out_of_memory_is_halved(  # noqa: PLR0917 - fixtures
    kernel: str,
    call: int,
    resets: bool,  # noqa: FBT001
    engine: Any,
    unchanged_gradient: Callable[[int], torch.Tensor],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The first pass ends within the backward pass of a layer that others follow, or within a forward pass.

    FSDP2 of torch before 2.13 has no call that resets it.
    """
    expected = unchanged_gradient(3)
    if not resets:
        monkeypatch.delattr(FSDPModule, "reset_iter_state")
    monkeypatch.setattr(engine_choice, "attention_problem", lambda *_: "")
    recorded = record_gradients(engine, monkeypatch)
    write_dataset(tiny_model, tmp_path, groups=2, episodes=3)
    monkeypatch.setattr(attention_kernels, kernel, failing_at(call, getattr(attention_kernels, kernel)))
    train_here(debug_plan(tiny_model, tmp_path, steps=1))
    (halved,) = recorded["PolicyTreeEngine"]
    assert_close(halved, expected)
    lines = [line for line in capfd.readouterr().out.splitlines() if "spanloop: out of memory" in line]
    assert len(lines) == 1
    assert "passes have at most" in lines[0]


def test_a_row_that_runs_out_of_memory_alone_ends_the_job(
    engine: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where the other passes have several rows."""
    monkeypatch.setattr(engine_choice, "attention_problem", lambda *_: "")
    write_dataset(tiny_model, tmp_path, groups=2, episodes=3)
    rows = pl.read_parquet(tmp_path / "dataset.parquet")
    longest = pl.col("prompt_token_ids").list.len() + pl.col("response_token_ids").list.len()
    tokens = rows.select(longest.max()).item()
    compute = engine.prepare_model_outputs

    def failing(self: Any, output: Any, output_args: Any, micro_batch: Any, *arguments: Any, **settings: Any) -> Any:
        if max(map(len, micro_batch["input_ids"].unbind())) == tokens:
            raise torch.OutOfMemoryError("CUDA out of memory (a test)")
        return compute(self, output, output_args, micro_batch, *arguments, **settings)

    monkeypatch.setattr(engine, "prepare_model_outputs", failing)
    with pytest.raises(torch.OutOfMemoryError, match=f"its longest row has {tokens} tokens, and it cannot be smaller"):
        train_here(debug_plan(tiny_model, tmp_path, steps=1))
    limits = re.findall("passes have at most (.*) tokens", capfd.readouterr().out)
    assert limits
    assert all(2 * int(after) <= int(before) for before, after in itertools.pairwise(limits))


def failing_at(call: int, kernel: Any) -> Any:
    """A kernel that runs out of memory once."""
    calls = itertools.count(1)

    def run(*arguments: Any, **settings: Any) -> Any:
        if next(calls) == call:
            raise torch.OutOfMemoryError("CUDA out of memory (a test)")
        return kernel(*arguments, **settings)

    return run


def test_checkpointed_activations_are_computed_again_without_their_attention(
    engine: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = record_gradients(engine, monkeypatch)
    kernel, attention = attention_kernels._CPU_FORWARD, tree_attention.tree_attention
    calls: Counter[tuple[str, bool]] = Counter()

    def counted(name: str, function: Any, *arguments: Any, **settings: Any) -> Any:
        # without gradients the engine only computes what it stores beside the weights
        calls[name, is_checkpointed] += name == "kernel" or torch.is_grad_enabled()
        return function(*arguments, **settings)

    monkeypatch.setattr(attention_kernels, "_CPU_FORWARD", partial(counted, "kernel", kernel))
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, tree_attention.ATTENTION, partial(counted, "attention", attention))
    write_dataset(tiny_model, tmp_path, groups=2, episodes=2)
    for is_checkpointed in (False, True):
        override = f"actor_rollout_ref.model.enable_gradient_checkpointing={is_checkpointed}"
        train_here(debug_plan(tiny_model, tmp_path, steps=1, verl=(override,)))
    assert_close(*recorded["PolicyTreeEngine"])
    assert calls["attention", True] == 2 * calls["attention", False] > 0
    assert calls["kernel", True] == calls["kernel", False]


@pytest.mark.parametrize("kept_layers", [1, 2])
def test_layers_that_fit_into_memory_keep_their_activations(  # noqa: PLR0917 - fixtures
    kept_layers: int,
    engine: Any,
    unchanged_gradient: Callable[[int], torch.Tensor],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the tiny model's two layers."""
    expected = unchanged_gradient(2)
    recorded = record_gradients(engine, monkeypatch)
    tokens = 10_000
    shape = read_shape(tiny_model)
    needed, layer = pass_memory(shape, tokens=tokens)
    monkeypatch.setattr(kept_activations, "pass_memory", lambda shape, **_: pass_memory(shape, tokens=tokens))
    write_dataset(tiny_model, tmp_path, groups=2, episodes=2)
    norms: list[int] = []
    norm: Any = LlamaRMSNorm.forward

    def counted(*arguments: Any) -> Any:
        if torch.is_grad_enabled():
            norms.append(1)
        return norm(*arguments)

    monkeypatch.setattr(LlamaRMSNorm, "forward", counted)
    monkeypatch.setattr(engine, "_free_bytes", lambda _: needed + kept_layers * layer + layer // 2)
    override = "actor_rollout_ref.model.enable_gradient_checkpointing=True"
    (step,) = train_here(debug_plan(tiny_model, tmp_path, steps=1, verl=(override,)))
    (kept,) = recorded["PolicyTreeEngine"]
    assert_close(kept, expected)
    assert step.values["actor/recomputed_layers"] == shape.layers - kept_layers
    # two in each layer and the last one; a recomputed layer has its own again
    assert len(norms) == 2 * shape.layers + 1 + 2 * (shape.layers - kept_layers)


def test_kept_activations_are_recomputed_after_a_pass_ran_out_of_memory(
    engine: Any,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(engine_choice, "attention_problem", lambda *_: "")
    recorded = record_gradients(engine, monkeypatch)
    write_dataset(tiny_model, tmp_path, groups=2, episodes=2)
    monkeypatch.setattr(engine, "_free_bytes", lambda _: 10**12)
    override = "actor_rollout_ref.model.enable_gradient_checkpointing=True"
    plan = debug_plan(tiny_model, tmp_path, steps=1, verl=(override,))
    (kept,) = train_here(plan)
    monkeypatch.setattr(attention_kernels, "_CPU_BACKWARD", failing_at(2, attention_kernels._CPU_BACKWARD))
    plan.metrics_path.unlink()
    (recomputed,) = train_here(plan)
    assert_close(*recorded["PolicyTreeEngine"])
    assert "out of memory; passes recompute all activations from now on" in capfd.readouterr().out
    assert kept.values["actor/recomputed_layers"] == 0
    assert recomputed.values["actor/recomputed_layers"] == read_shape(tiny_model).layers


def test_a_model_that_cannot_be_packed_is_computed_by_the_stock_engine(
    engine: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recorded = record_gradients(engine, monkeypatch)
    write_dataset(tiny_model, tmp_path, groups=2, episodes=2)
    plan = debug_plan(tiny_model, tmp_path, steps=1)
    train_here(plan)
    monkeypatch.setattr(engine_choice, "_FAMILIES", frozenset())
    train_here(plan)
    assert_close(*recorded["PolicyTreeEngine"])
    printed = capfd.readouterr().out
    assert "spanloop: rows are computed by packed prefix trees" in printed
    assert "spanloop: rows are computed by verl's stock engine: models of type 'llama' are not known" in printed

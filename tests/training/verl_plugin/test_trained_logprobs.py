# pyright: basic
"""The log-probabilities that a trainer stores beside its weights are those of these weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from spanloop.foundation.logprob_agreement import agreement
from spanloop.foundation.trained_logprobs import PROBE_TEXT, PROBE_TOKENS, TrainedLogprobs
from spanloop.training.models.checkpoints import assemble_model, latest_checkpoint
from spanloop.training.run.logprob_agreement import response_logprobs
from spanloop.training.verl_plugin.engine import engine_choice

from ..debug_training import debug_plan, train_here, write_dataset


@pytest.mark.parametrize(("kind", "changes"), [("sft", {}), ("dr_grpo", {"lora_rank": 4}), ("dpo", {}), ("ppo", {})])
def test_saved_weights_have_the_log_probabilities_of_the_trainer(
    tiny_model: Path, tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    write_dataset(tiny_model, tmp_path, kind=kind, groups=2, episodes=2)
    train_here(debug_plan(tiny_model, tmp_path, kind=kind, steps=2, samples_path=None, **changes))
    checkpoint = latest_checkpoint(tmp_path / "checkpoints")
    assert checkpoint is not None
    folder = assemble_model(checkpoint, tiny_model, tmp_path / "model")
    stored = TrainedLogprobs.read(folder)
    assert stored is not None
    text = AutoTokenizer.from_pretrained(tiny_model)(PROBE_TEXT, add_special_tokens=False)
    assert list(stored.token_ids) == text["input_ids"][:PROBE_TOKENS]
    differences = [agreement(_recomputed(each, stored.token_ids), stored.logprobs) for each in (folder, tiny_model)]
    assert differences[0].mean < 1e-4 < differences[1].mean


def test_the_stock_engine_stores_them_too(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "model_problem", lambda _config: "a reason")
    write_dataset(tiny_model, tmp_path, groups=2, episodes=2)
    train_here(debug_plan(tiny_model, tmp_path, steps=1, samples_path=None))
    checkpoint = latest_checkpoint(tmp_path / "checkpoints")
    assert checkpoint is not None
    folder = assemble_model(checkpoint, tiny_model, tmp_path / "model")
    stored = TrainedLogprobs.read(folder)
    assert stored is not None
    assert agreement(_recomputed(folder, stored.token_ids), stored.logprobs).mean < 1e-4


def _recomputed(folder: Path, token_ids: tuple[int, ...]) -> list[float]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    logprobs: list[float] = response_logprobs(model, [token_ids[0]], [*token_ids[1:]]).tolist()
    return logprobs

"""From the spans' text of another model to trained weights, without a captured token."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType] - half annotated

from spanloop.store import Store
from spanloop.training.dataset.export import export_dataset
from spanloop.training.models.base_model import read_base_model
from spanloop.training.spec.job_spec import JobSpec

from ..dataset.test_text_rows import nobody, seed_foreign, text
from ..debug_training import debug_plan, train_here, trained_weights


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_the_text_of_another_models_spans_trains(kind: str, store: Store, tiny_model: Path, tmp_path: Path) -> None:
    for number in range(4):
        end = text("assistant", "12." if number % 2 else "Who knows?")
        seed_foreign(store, f"episode-{number}", reward=float(number % 2), end=end)
    base = read_base_model("tiny@v1", tiny_model)
    manifest = export_dataset(
        store, JobSpec.of(kind=kind, base="tiny"), base, tokenizer_of=nobody, job_id="j", folder=tmp_path
    )
    assert set(manifest.sources) == {"rendered"}
    limits: dict[str, Any] = {
        "max_prompt_tokens": manifest.longest_prompt_tokens,
        "max_response_tokens": manifest.longest_response_tokens,
    }
    plan = debug_plan(tiny_model, tmp_path, kind=kind, **limits)
    steps = train_here(plan)
    assert [step.step for step in steps] == [1, 2]
    assert steps[1].values["train/loss"] < steps[0].values["train/loss"]
    before: dict[str, torch.Tensor] = load_file(tiny_model / "model.safetensors")
    assert any(not torch.equal(weights, before[name]) for name, weights in trained_weights(plan).items())

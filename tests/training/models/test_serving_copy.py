# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
import json
import math
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from spanloop.foundation.errors import JobError
from spanloop.training.models.files.weights import check_weights
from spanloop.training.models.registry import ModelVersion
from spanloop.training.models.serving_copy import serving_path

HEAD = "lm_head.weight"


def make_version(path: Path, *, tied: bool, shard: str = "5GB") -> ModelVersion:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=tied,
    )
    LlamaForCausalLM(config).save_pretrained(path, max_shard_size=shard)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return ModelVersion("m", "v1", path, None, None, now, "sha", 1, MappingProxyType({}))


def logits(path: Path) -> torch.Tensor:
    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(path, dtype=torch.bfloat16)
    with torch.no_grad():
        result: torch.Tensor = model(torch.arange(16)[None]).logits
    return result


def test_an_untied_model_is_served_as_it_is(tmp_path: Path) -> None:
    version = make_version(tmp_path / "v1", tied=False)
    assert serving_path(version) == version.path
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_a_tied_model_gets_an_untied_copy_that_answers_the_same(tmp_path: Path, shard: str) -> None:
    version = make_version(tmp_path / "v1", tied=True, shard=shard)
    served = serving_path(version)
    assert served == tmp_path / "v1.serving"
    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(served, dtype="auto")
    assert model.dtype == torch.bfloat16
    assert not model.config.tie_word_embeddings
    assert model.lm_head.weight.data_ptr() != model.model.embed_tokens.weight.data_ptr()
    assert torch.equal(logits(served), logits(version.path))


def test_the_copy_is_made_once_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    version = make_version(tmp_path / "v1", tied=True)
    first = serving_path(version)
    made = (first / "model.safetensors").stat().st_mtime_ns
    assert serving_path(version) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == made
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v1", "v1.serving"]


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    version = replace(make_version(tmp_path / "v1", tied=True), path=tmp_path)
    with pytest.raises(JobError, match="safetensors"):
        serving_path(version)


def edge_values(dtype: torch.dtype) -> torch.Tensor:
    ties = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-16, 1 + 2**-8 + 2**-40, -1 - 2**-8]
    others = [0.0, -0.0, 3.4e38, -1e300, 1e-45, math.inf, -math.inf, math.nan]
    return torch.tensor([*ties, *others, *torch.linspace(-3, 3, 51).tolist()], dtype=torch.float64).to(dtype)[:, None]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.bfloat16])
def test_the_copy_rounds_as_torch_does_and_keeps_integers(tmp_path: Path, dtype: torch.dtype) -> None:
    version = make_version(tmp_path / "v1", tied=True)
    embeddings, ids = edge_values(dtype), torch.arange(3)
    save_file({"model.embed_tokens.weight": embeddings, "ids": ids}, version.path / "model.safetensors")
    served = load_file(serving_path(version) / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert torch.allclose(served[name], embeddings.bfloat16(), rtol=0, atol=0, equal_nan=True)
        assert torch.equal(served[name].signbit()[~embeddings.isnan()], embeddings.signbit()[~embeddings.isnan()])
    assert torch.equal(served["ids"], ids)


def test_the_copy_of_large_weights_has_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanloop.training.models.serving_copy._PART_BYTES", 10_000)
    version = make_version(tmp_path / "v1", tied=True, shard="20KB")
    served = serving_path(version)
    weight_map = json.loads((served / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(weight_map.values())) > 2
    assert set(check_weights(served).tensors) == set(weight_map) == {*check_weights(version.path).tensors, HEAD}
    assert torch.equal(logits(served), logits(version.path))


def test_a_type_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    version = make_version(tmp_path / "v1", tied=True)
    save_file({"w": torch.zeros(2).to(torch.float8_e4m3fn)}, version.path / "model.safetensors")
    with pytest.raises(JobError, match="tensor 'w' is of type F8_E4M3"):
        serving_path(version)
    assert [path.name for path in tmp_path.iterdir()] == ["v1"]


def test_models_are_listed_and_deployed_without_numpy() -> None:
    code = (
        "import sys, spanloop.training.models.registry, spanloop.training.promotion.deploy;"
        "assert not {'numpy', 'ml_dtypes', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

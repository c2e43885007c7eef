# pyright: reportUnknownMemberType=false
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from spanloop.foundation.errors import JobError
from spanloop.training.models.registry import ModelVersion
from spanloop.training.models.serving_copy import serving_path


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

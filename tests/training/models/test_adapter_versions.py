"""Versions that are LoRA adapters: how a job starts from one, keeps one, and how it is deployed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType] - half annotated

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.models.adapter_versions import adapter_to_keep, full_weights, weights_version
from spanloop.training.models.base_model import read_base_model
from spanloop.training.models.checkpoints import KeptAdapter
from spanloop.training.models.files.lora_adapter import LowRank, adapter_rank, read_adapter, write_adapter
from spanloop.training.models.files.weights import check_weights
from spanloop.training.models.registry import ADAPTER_BASE, ModelVersion, Registry
from spanloop.training.promotion.deploy import deploy
from spanloop.training.spec.choices import Backbone
from spanloop.training.spec.job_spec import JobSpec

from ..gateway_stand_in import gateway_stand_in
from ..training_running import Runner
from ..training_seeding import seed_groups


def add_adapter(registry: Registry, base: ModelVersion, folder: Path, *, rank: int = 4) -> ModelVersion:
    """An adapter of all linear layers, whose updates are matrices of 0.01 times the rank."""
    shapes = {name: tensor.shape for name, tensor in check_weights(base.path).tensors.items() if "_proj" in name}
    adapter = {
        name.removesuffix(".weight"): LowRank(torch.full((rank, inputs), 0.1), torch.full((outputs, rank), 0.1))
        for name, (outputs, inputs) in shapes.items()
    }
    shutil.copytree(base.path, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    write_adapter(adapter, base.reference, folder)
    return registry.add("tiny", folder, parent=base.reference, metadata={ADAPTER_BASE: base.reference})


def test_an_adapter_stands_for_merged_weights(data_dir: DataDir, tiny_model: Path, tmp_path: Path) -> None:
    registry = Registry(data_dir)
    base = registry.add("tiny", tiny_model)
    version = add_adapter(registry, base, tmp_path / "adapter")
    assert (base.adapter_base, version.adapter_base) == (None, "tiny@v1")
    assert version.weights_sha256 != base.weights_sha256
    assert version.size_bytes < base.size_bytes
    assert registry.tokenizer_fingerprint("tiny@v2") == registry.tokenizer_fingerprint("tiny@v1")
    assert [each.reference for each in registry.lineage("tiny@v2")] == ["tiny@v1", "tiny@v2"]
    assert full_weights(registry, base, tmp_path / "unused") == base.path

    scratch = tmp_path / "job" / "base"
    assert full_weights(registry, version, scratch) == scratch
    before, after = load_file(tiny_model / "model.safetensors"), load_file(scratch / "model.safetensors")
    for name, weights in before.items():
        update = 0.04 if "_proj" in name else 0
        torch.testing.assert_close(after[name], weights + update, rtol=0, atol=1e-6)
    # it can be trained, and the adapter's own folder cannot
    assert read_base_model("tiny@v2", scratch).tokenizer == read_base_model("tiny@v1", tiny_model).tokenizer
    with pytest.raises(JobError, match="is a LoRA adapter without the weights of its base"):
        read_base_model("tiny@v2", version.path)
    # a second start of the job uses the copy again
    written = (scratch / "model.safetensors").stat().st_mtime_ns
    assert full_weights(registry, version, scratch) == scratch
    assert (scratch / "model.safetensors").stat().st_mtime_ns == written


def test_a_job_that_starts_from_an_adapter_keeps_both_for_one_base(
    data_dir: DataDir, tiny_model: Path, tmp_path: Path
) -> None:
    registry = Registry(data_dir)
    base = registry.add("tiny", tiny_model)
    version = add_adapter(registry, base, tmp_path / "adapter", rank=8)
    spec = JobSpec.of(base="tiny", lora_rank=504, lora_merge=False)
    assert adapter_to_keep(registry, spec, base.reference) == KeptAdapter("tiny@v1")
    assert adapter_to_keep(registry, spec, version.reference) == KeptAdapter("tiny@v1", merged=version.path)
    assert adapter_to_keep(registry, spec.changed(lora_merge=True), version.reference) is None
    with pytest.raises(JobError, match=r"of rank 8\. With lora_rank 505 the new one would have rank 513"):
        adapter_to_keep(registry, spec.changed(lora_rank=505), version.reference)


def test_an_adapter_is_deployed_with_its_base(data_dir: DataDir, tiny_model: Path, tmp_path: Path) -> None:
    registry = Registry(data_dir)
    base = registry.add("tiny", tiny_model)
    version = add_adapter(registry, base, tmp_path / "adapter")
    with gateway_stand_in(data_dir) as gateway:
        assert deploy(data_dir, "tiny@v2") == version
        assert deploy(data_dir, "tiny@v1") == base
        shutil.rmtree(base.path)
        with pytest.raises(JobError, match=r"tiny@v2 needs the weights of tiny@v1; their folder does not exist"):
            deploy(data_dir, "tiny@v2")
        with pytest.raises(JobError, match="needs the weights of tiny@v1"):
            weights_version(registry, version)
    bodies = [body for _, body in gateway.asked]
    common = {"name": "tiny", "path": "models/tiny/v1", "tokenizer": registry.tokenizer_fingerprint(version.reference)}
    assert bodies == [common | {"version": "v2", "adapter": "models/tiny/v2"}, common | {"version": "v1"}]
    assert registry.deployed() == base


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_keep_stack_and_merge_adapters(runner: Runner, store: Store, tiny_model: Path, tmp_path: Path) -> None:
    seed_groups(store, tiny_model)
    settings = {"kind": "sft", "steps": 1, "lora_rank": 4, "learning_rate": 1e-2, "backbone": Backbone.DEBUG}
    registry = Registry(runner.data_dir)
    weights = {"tiny@v1": load_file(tiny_model / "model.safetensors")}
    for number, (base, merge) in enumerate((("tiny@v1", False), ("tiny@v2", False), ("tiny@v3", True)), start=2):
        spec = JobSpec.model_validate({**settings, "base": base, "lora_merge": merge})
        job, status, log = runner.run(spec, tmp_path / f"log-{number}.txt")
        assert status == 0, log
        assert job.model_version == f"tiny@v{number}"
        version = registry.get(job.model_version)
        assert (version.parent, version.adapter_base) == (base, None if merge else "tiny@v1")
        folder = full_weights(registry, version, tmp_path / version.version)
        weights[version.reference] = load_file(folder / "model.safetensors")
    assert [adapter_rank(registry.get(reference).path) for reference in ("tiny@v2", "tiny@v3")] == [4, 8]
    config = json.loads((registry.get("tiny@v3").path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny@v1"
    first, second = (read_adapter(registry.get(reference).path) for reference in ("tiny@v2", "tiny@v3"))
    for layer, update in first.items():
        torch.testing.assert_close(second[layer].a[:4], update.a)
    # each job moved the weights, by one step of Adam times the scale
    for older, newer in (("tiny@v1", "tiny@v2"), ("tiny@v2", "tiny@v3"), ("tiny@v3", "tiny@v4")):
        name = "model.layers.0.self_attn.q_proj.weight"
        moved = (weights[newer][name] - weights[older][name]).abs().max()
        assert 0 < moved < 1
        assert weights[newer]["model.norm.weight"].equal(weights[older]["model.norm.weight"])

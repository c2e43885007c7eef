"""Device and precision are those of the host that trains."""

import importlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from spanloop.foundation.errors import JobError
from spanloop.training.dataset.manifest import Count, Manifest
from spanloop.training.models.base_model import BaseModelFacts
from spanloop.training.run.planning import FILLING_ROW_TOKENS, longest_computed_row, make_plan
from spanloop.training.spec.choices import Device
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.verl_plugin import compute
from spanloop.training.verl_plugin.compute import Compute, local_compute, resolve_compute
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..training_running import a_plan
from ..training_seeding import STARTED_AT

NONE = Count(accepted=4, rejected={})
MANIFEST = Manifest(
    job_id="j", kind="grpo", created_at=STARTED_AT, base="tiny@v1", query="", query_parameters={}, rows=NONE,
    episodes=NONE, groups=NONE, prompt_groups=4, temperature=1.0, longest_prompt_tokens=5, longest_response_tokens=6,
    longest_row_tokens=11, mean_reward=0.5, data_sha256="", pinned=(),
)  # fmt: skip


FREE_BYTES = 80_000_000_000


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler's host without a GPU, and a cluster with one."""

    def here(_: Device) -> Compute:
        return Compute(Device.CPU, bfloat16=False)

    def there(_: TrainPlan) -> Compute:
        return Compute(Device.CUDA, bfloat16=True, free_bytes=FREE_BYTES)

    monkeypatch.setattr(compute, "local_compute", here)
    monkeypatch.setattr(compute, "cluster_compute", there)


def test_a_plan_leaves_device_and_precision_to_the_host_that_trains(tmp_path: Path) -> None:
    base = BaseModelFacts("tiny@v1", tmp_path, vocabulary_size=9, context_tokens=99, tokenizer="t")
    plan = make_plan(JobSpec.of(base="tiny"), base, MANIFEST, folder=tmp_path, attempt=1, ray_folder=tmp_path)
    assert (plan.device, plan.bfloat16, plan.micro_batch_tokens, plan.longest_row_tokens) == (
        Device.AUTO,
        None,
        None,
        11,
    )
    chosen = JobSpec.of(base="tiny", micro_batch_tokens=5)
    plan = make_plan(chosen, base, MANIFEST, folder=tmp_path, attempt=1, ray_folder=tmp_path)
    assert plan.micro_batch_tokens == 11


@pytest.mark.usefixtures("hosts")
def test_a_cluster_is_asked_for_its_own_device(tiny_model: Path, tmp_path: Path) -> None:
    here = resolve_compute(a_plan(tmp_path, device=Device.AUTO))
    there = resolve_compute(a_plan(tmp_path, device=Device.AUTO, model_path=tiny_model, ray_address="10.0.0.1:6379"))
    assert (here.device, here.bfloat16) == (Device.CPU, False)
    assert (there.device, there.bfloat16) == (Device.CUDA, True)


@pytest.mark.usefixtures("hosts")
def test_auto_micro_batches_are_those_of_the_host_that_trains(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(tmp_path, device=Device.AUTO, model_path=tiny_model, micro_batch_tokens=None, longest_row_tokens=30)
    on_cluster = plan.model_copy(update={"run": plan.run.model_copy(update={"ray_address": "10.0.0.1:6379"})})
    assert resolve_compute(plan).micro_batch_tokens == 2048
    assert resolve_compute(plan.model_copy(update={"longest_row_tokens": 3000})).micro_batch_tokens == 3000
    assert resolve_compute(on_cluster).micro_batch_tokens == 32_768
    assert resolve_compute(on_cluster.model_copy(update={"micro_batch_tokens": 99})).micro_batch_tokens == 99
    assert not resolve_compute(on_cluster).checkpoint_activations
    long_passes = on_cluster.model_copy(update={"micro_batch_tokens": 10_000_000})
    assert resolve_compute(long_passes).checkpoint_activations
    assert not resolve_compute(plan.model_copy(update={"micro_batch_tokens": 10_000_000})).checkpoint_activations
    monkeypatch.setattr(f"{__name__}.FREE_BYTES", 1_000_000_000)
    with pytest.raises(JobError, match=r"about 1 GB on each GPU for a row of 30 tokens; 1 GB are free") as error:
        resolve_compute(on_cluster)
    assert "--gpu-memory-utilization" in error.value.next_step


@pytest.mark.usefixtures("hosts")
def test_offload_is_refused_on_a_cpu(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="has weights and optimiser states in the host's memory"):
        resolve_compute(a_plan(tmp_path, device=Device.AUTO, offload=True))
    with pytest.raises(ValidationError, match="a CPU has weights and optimiser states in the host's memory"):
        JobSpec.of(base="m", device=Device.CPU, offload=True)


@pytest.mark.usefixtures("hosts")
def test_a_precision_of_the_plan_is_kept(tmp_path: Path) -> None:
    assert resolve_compute(a_plan(tmp_path, bfloat16=True)).bfloat16 is True


@pytest.mark.usefixtures("hosts")
def test_each_rank_needs_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="2 ranks, one on each GPU, and there are 1 GPUs"):
        resolve_compute(a_plan(tmp_path, device=Device.AUTO, ray_address="10.0.0.1:6379", gpus_per_node=2))
    assert resolve_compute(a_plan(tmp_path, device=Device.AUTO, gpus_per_node=2)).device is Device.CPU


def test_fewer_rows_than_ranks_are_refused(tmp_path: Path) -> None:
    base = BaseModelFacts("tiny@v1", tmp_path, vocabulary_size=9, context_tokens=99, tokenizer="t")
    spec = JobSpec.of(base="tiny", kind="sft", batch_groups=8, gpus_per_node=8)
    with pytest.raises(JobError, match="4 rows for 8 ranks"):
        make_plan(spec, base, MANIFEST, folder=tmp_path, attempt=1, ray_folder=tmp_path)
    plan = make_plan(
        JobSpec.of(base="tiny", kind="sft", batch_groups=9, gpus_per_node=3),
        base,
        MANIFEST,
        folder=tmp_path,
        attempt=1,
        ray_folder=tmp_path,
    )
    assert (plan.run.ranks, plan.batch_size) == (3, 3)


@pytest.mark.filterwarnings("ignore")
def test_a_micro_batch_takes_the_rows_that_fill_a_batch_up() -> None:
    padding = importlib.import_module("verl.trainer.ppo.padding_utils")
    assert padding.SYNTHETIC_PADDING_SEQ_LEN == FILLING_ROW_TOKENS
    one, two = (JobSpec.of(base="tiny", gpus_per_node=ranks) for ranks in (1, 2))
    assert (longest_computed_row(one, 30), longest_computed_row(two, 30)) == (30, FILLING_ROW_TOKENS)
    assert longest_computed_row(two, 300) == 300


def test_cuda_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(JobError, match="sees no CUDA device"):
        local_compute(Device.CUDA)
    assert local_compute(Device.AUTO).device is Device.CPU

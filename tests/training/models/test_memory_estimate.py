"""The formulas of a job's memory, and the micro-batches that fit into a GPU."""

from pathlib import Path

import pytest

from spanloop.training.models.memory_estimate import (
    CUDA_BYTES,
    MAX_AUTO_TOKENS,
    PROCESSES_BYTES,
    RANK_BYTES,
    MemoryFactors,
    estimate_on_cpu,
    estimate_on_gpus,
    fits_all_activations,
    gpu_tokens,
)
from spanloop.training.models.model_shape import ModelShape
from spanloop.training.spec.choices import OptimizerDtype
from spanloop.training.spec.job_spec import JobSpec

SMOLLM2_135M = ModelShape(
    parameters=134_515_008, layers=30, hidden=576, key_value=192, intermediate=1536, vocabulary=49_152
)
QWEN25_7B = ModelShape(
    parameters=7_615_616_512, layers=28, hidden=3584, key_value=512, intermediate=18_944, vocabulary=152_064
)
SMALL = ModelShape(parameters=2000, layers=2, hidden=8, key_value=4, intermediate=16, vocabulary=32)
LAYER = 8 * (2 * 8 + 2 * 4 + 3 * 16)
GB = 1_000_000_000


def test_an_estimate_is_near_what_was_measured() -> None:
    """docs/design/measurements.md: 7.0 GB at the peak, 1.3 MB for each token of a micro-batch."""
    estimate = estimate_on_cpu(SMOLLM2_135M, MemoryFactors(), micro_batch_tokens=2048, bfloat16=True)
    assert estimate.total / 7.0e9 == pytest.approx(1, abs=0.15)
    assert estimate.activations / 2048 == pytest.approx(1.3e6, rel=0.2)


def test_an_estimate_on_a_cpu_follows_its_formula() -> None:
    estimate = estimate_on_cpu(SMALL, MemoryFactors(), micro_batch_tokens=10, bfloat16=False)
    assert estimate[:4] == (8000, 8000, 16_000, 8000)
    layer = 16 * 8 + 4 * (7 * 8 + 2 * 4 + 4 * 16)
    assert estimate.activations == 10 * (2 * layer + 2 * 4 * 32)
    more = MemoryFactors(has_reference=True, has_critic=True)
    smaller = estimate_on_cpu(SMALL, more, micro_batch_tokens=10, bfloat16=True)
    assert (estimate.reference, estimate.critic) == (0, 0)
    assert (smaller.compute_copy, smaller.reference, smaller.critic) == (4000, 12_000, 36_000)
    assert smaller.activations < estimate.activations
    two = estimate_on_cpu(SMALL, MemoryFactors(ranks=2), micro_batch_tokens=10, bfloat16=False)
    assert two[:3] == estimate[:3]
    assert (two.compute_copy, two.activations) == (16_000, 2 * estimate.activations)


def test_an_estimate_on_gpus_follows_its_formula() -> None:
    gpu, host = estimate_on_gpus(SMALL, MemoryFactors(), micro_batch_tokens=10)
    copy = 2 * 2 * (2 * LAYER + SMALL.parameters - 2 * LAYER)
    token = 2 * 4 * 8 + 16 * 8 + 2 * (7 * 8 + 2 * 4 + 4 * 16)
    logits = 10 * MAX_AUTO_TOKENS * 32
    assert gpu == (8000, 8000, 16_000, copy, 10 * token + logits, 0, 0, CUDA_BYTES)
    assert host == (8000, 0, 0, 32_000, 0, 0, 0, PROCESSES_BYTES)
    # ranks share what is trained
    shared = estimate_on_gpus(SMALL, MemoryFactors(ranks=4, has_reference=True), micro_batch_tokens=10)
    assert estimate_on_gpus(SMALL, MemoryFactors(lora_rank=1), micro_batch_tokens=10).gpu.compute_copy == copy / 2
    assert shared.gpu == gpu._replace(weights=2000, gradients=2000, adam=4000)
    assert shared.host == host._replace(reference=8000, processes=PROCESSES_BYTES + 3 * RANK_BYTES)
    critic = estimate_on_gpus(SMALL, MemoryFactors(has_critic=True), micro_batch_tokens=10)
    assert critic.gpu == gpu._replace(critic=32_000 + copy)


def test_offload_moves_what_is_trained_to_the_host() -> None:
    factors = MemoryFactors(has_critic=True)
    here, there = (
        estimate_on_gpus(SMALL, factors._replace(offload=offload), micro_batch_tokens=10) for offload in (False, True)
    )
    assert there.gpu[:3] == (0, 0, 0)
    assert there.host[:3] == here.gpu[:3]
    assert (there.host.critic, there.gpu.critic) == (32_000, there.gpu.compute_copy)
    assert there.gpu[3:5] == here.gpu[3:5]


def test_a_model_of_7b_fits_one_gpu_of_80_gb_with_lora_or_offload() -> None:
    full, lora, offload = MemoryFactors(), MemoryFactors(lora_rank=16), MemoryFactors(offload=True)
    assert gpu_tokens(QWEN25_7B, full, free_bytes=80 * GB) == 0
    assert gpu_tokens(QWEN25_7B, full._replace(ranks=4), free_bytes=80 * GB) > 4096
    for factors in (lora, offload):
        tokens = gpu_tokens(QWEN25_7B, factors, free_bytes=80 * GB)
        assert 8192 < tokens <= 32_768
        assert estimate_on_gpus(QWEN25_7B, factors, micro_batch_tokens=tokens).gpu.total <= 0.9 * 80 * GB
    # what another process holds leaves fewer tokens, or none
    fewer = gpu_tokens(QWEN25_7B, lora, free_bytes=44 * GB)
    assert 0 < fewer < 8192
    one_more = estimate_on_gpus(QWEN25_7B, lora, micro_batch_tokens=fewer + 1).gpu.total
    assert one_more > 0.9 * 44 * GB
    # verl loads the float32 weights onto the GPU before it moves them to the host
    assert gpu_tokens(QWEN25_7B, offload, free_bytes=30 * GB) == 0


def test_all_activations_are_kept_where_they_fit() -> None:
    factors, tokens = MemoryFactors(), 1000
    fixed = estimate_on_gpus(SMALL, factors, micro_batch_tokens=tokens).gpu.total
    layers = 1.25 * tokens * 2 * (16 * 8 + 2 * (7 * 8 + 2 * 4 + 4 * 16))
    enough = int((fixed + layers) / 0.9) + 1
    assert fits_all_activations(SMALL, factors, micro_batch_tokens=tokens, free_bytes=enough)
    assert not fits_all_activations(SMALL, factors, micro_batch_tokens=tokens, free_bytes=enough - 10)


def test_the_factors_are_those_of_the_job() -> None:
    spec = JobSpec.of(base="m", kind="ppo", kl_coefficient=0.1, lora_rank=8, gpus_per_node=2, offload=True)
    assert MemoryFactors.of(spec) == (2, 8, True, True, True, 4)
    assert MemoryFactors.of(JobSpec.of(base="m")) == MemoryFactors()
    assert MemoryFactors.of(JobSpec.of(base="m", optimizer_dtype=OptimizerDtype.BFLOAT16)).moment_bytes == 2


def test_moments_in_bfloat16_take_half_the_memory() -> None:
    factors = MemoryFactors(has_critic=True, moment_bytes=2)
    cpu = estimate_on_cpu(SMALL, factors, micro_batch_tokens=10, bfloat16=True)
    gpu, _ = estimate_on_gpus(SMALL, factors, micro_batch_tokens=10)
    assert (cpu.weights, cpu.gradients, cpu.adam) == gpu[:3] == (8000, 8000, 8000)
    assert (cpu.critic, gpu.critic) == (24_000 + cpu.compute_copy, 24_000 + gpu.compute_copy)
    # 2 GPUs of 80 GB have the states of 7B with them, and not without
    shared = MemoryFactors(ranks=2)
    assert gpu_tokens(QWEN25_7B, shared, free_bytes=72 * GB) == 0
    assert gpu_tokens(QWEN25_7B, shared._replace(moment_bytes=2), free_bytes=72 * GB) > 4096


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ("all weights", MemoryFactors()),
        ('`optimizer_dtype = "bfloat16"`', MemoryFactors(moment_bytes=2)),
        ("`offload`", MemoryFactors(offload=True)),
        ('`offload`, `optimizer_dtype = "bfloat16"`', MemoryFactors(offload=True, moment_bytes=2)),
        ("`lora_rank = 16`", MemoryFactors(lora_rank=16)),
        ('`gpus_per_node = 2`, `optimizer_dtype = "bfloat16"`', MemoryFactors(ranks=2, moment_bytes=2)),
        ("`gpus_per_node = 4`", MemoryFactors(ranks=4)),
    ],
)
def test_the_table_of_the_documentation_is_the_formulas(settings: str, factors: MemoryFactors) -> None:
    gpu, host = estimate_on_gpus(QWEN25_7B, factors, micro_batch_tokens=8192)
    tokens = gpu_tokens(QWEN25_7B, factors, free_bytes=80 * GB)
    fits = f"{tokens:,}" if tokens else "does not fit"
    page = Path(__file__).parents[3] / "docs" / "how-to" / "train-and-deploy.md"
    assert f"| {settings} | {gpu.total / GB:.0f} | {host.total / GB:.0f} | {fits} |" in page.read_text().splitlines()

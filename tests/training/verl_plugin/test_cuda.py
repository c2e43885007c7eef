"""What only CUDA runs, with PyTorch alone: no verl, no model, no other fixture.

``python -m pytest tests/training/verl_plugin/test_cuda.py --noconftest`` on a machine with a GPU; skipped on others.
"""

import pytest
import torch

from spanloop.training.models.memory_estimate import MemoryFactors
from spanloop.training.spec.choices import Device
from spanloop.training.verl_plugin.compute import free_gpu_bytes, local_compute
from spanloop.training.verl_plugin.engine.bfloat16_adamw import AdamW

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
PARAMETERS = 2**23
"""Tensors of whole blocks of 2 MiB: the allocator counts what it rounds up as allocated."""


def trained(device: str, steps: int) -> torch.Tensor:
    """Weights after steps on a quadratic, with the same gradients on each device."""
    weights = torch.ones(4096, device=device, requires_grad=True)
    optimizer = AdamW([weights], lr=0.01, weight_decay=0.1)
    noise, curvature = torch.Generator().manual_seed(1), torch.logspace(-1, 1, weights.numel(), device=device)
    for _ in range(steps):
        weights.grad = curvature * weights.detach() + 0.1 * torch.randn(weights.shape, generator=noise).to(device)
        optimizer.step()
    return weights.detach().cpu()


def test_the_free_memory_is_that_of_the_fullest_device() -> None:
    compute = local_compute(Device.AUTO)
    assert (compute.device, compute.bfloat16, compute.gpus) == (Device.CUDA, True, torch.cuda.device_count())
    totals = [torch.cuda.mem_get_info(number)[1] for number in range(compute.gpus)]
    assert 0 < free_gpu_bytes() <= min(totals)


def test_adamw_with_moments_in_bfloat16_trains_as_on_a_cpu() -> None:
    torch.testing.assert_close(trained("cuda", 200), trained("cpu", 200), rtol=0, atol=0.02)


def test_weights_gradients_and_moments_take_the_estimated_bytes() -> None:
    before = torch.cuda.memory_allocated()
    weights = torch.zeros(PARAMETERS, device="cuda", requires_grad=True)
    optimizer = AdamW([weights])
    weights.grad = torch.ones_like(weights)
    optimizer.step()
    expected = MemoryFactors(moment_bytes=2).state_bytes * PARAMETERS
    assert torch.cuda.memory_allocated() - before == pytest.approx(expected, rel=0.01)

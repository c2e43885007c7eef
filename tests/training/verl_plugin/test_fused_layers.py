# pyright: basic
"""Fused layers of a decoder against transformers' own; torch stands for the kernels, which only CUDA runs."""

import copy
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn.functional import silu
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from spanloop.training.verl_plugin.engine import fused_layers
from spanloop.training.verl_plugin.engine.attention_plan import plan_attention
from spanloop.training.verl_plugin.engine.packed_batch import pack_batch
from spanloop.training.verl_plugin.engine.tree_attention import ATTENTION, tree_attention

ALL_ATTENTION_FUNCTIONS.register(ATTENTION, tree_attention)


def rotate(states: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, sign: float) -> torch.Tensor:
    first, second = states.chunk(2, -1)
    return states * cosine[:, None] + sign * torch.cat([-second, first], -1) * sine[:, None]


def gated_backward(upstream: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, ...]:
    inputs = [each.detach().requires_grad_() for each in (gate, up)]
    with torch.enable_grad():
        return torch.autograd.grad(silu(inputs[0]) * inputs[1], inputs, upstream)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels' formulas in torch."""
    module: Any = ModuleType("triton_kernels")
    module.gated, module.gated_backward, module.rotate = lambda gate, up: silu(gate) * up, gated_backward, rotate
    monkeypatch.setitem(sys.modules, f"{fused_layers.__package__}.triton_kernels", module)


def make(family: str) -> Any:
    config = AutoConfig.for_model(
        family,
        vocab_size=61,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation=ATTENTION,
    )
    torch.manual_seed(0)
    loader: Any = AutoModelForCausalLM
    return loader.from_config(config).float()


def gradients(model: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Hidden states of packed rows, and gradients of a loss over them."""
    draw = torch.Generator().manual_seed(1)
    common = torch.randint(61, (20,), generator=draw)
    rows = [torch.cat([common, torch.randint(61, (length,), generator=draw)]) for length in (9, 17, 4)]
    batch = pack_batch(rows, [torch.ones(4, dtype=torch.int64)] * 3)
    hidden = model.model(
        input_ids=batch.input_ids,
        position_ids=batch.position_ids,
        attention_plan=plan_attention(batch.layout, torch.device("cpu")),
        use_cache=False,
    ).last_hidden_state
    weights = torch.randn(hidden.shape, generator=draw)
    parameters = [each for name, each in model.named_parameters() if not name.startswith("lm_head")]
    return hidden.detach(), list(torch.autograd.grad((hidden * weights).sum(), parameters))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_fused_layers_have_the_outputs_and_gradients_of_transformers(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(family)
    code = sys.modules[type(model).__module__]
    monkeypatch.setattr(code, "apply_rotary_pos_emb", code.apply_rotary_pos_emb)  # restored afterwards
    expected = gradients(model)
    fused = copy.deepcopy(model)
    calls: list[str] = []
    for name in ("Gated", "Rotated"):
        function: Any = getattr(fused_layers, name)
        apply = function.apply
        monkeypatch.setattr(
            function, "apply", lambda *args, name=name, apply=apply: calls.append(name) or apply(*args), raising=False
        )
    fused_layers.install(fused)
    hidden, computed = gradients(fused)
    assert sorted(calls) == ["Gated"] * 2 + ["Rotated"] * 4
    torch.testing.assert_close(hidden, expected[0], atol=1e-5, rtol=1e-5)
    for one, other in zip(computed, expected[1], strict=True):
        assert (one - other).norm() <= 1e-5 * other.norm()


@pytest.mark.usefixtures("kernels")
def test_the_self_test_finds_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cpu")
    assert not fused_layers.fusion_problem(device)
    kernels: Any = sys.modules[f"{fused_layers.__package__}.triton_kernels"]
    monkeypatch.setattr(kernels, "rotate", lambda states, *_: states)
    assert "differs from float32" in fused_layers.fusion_problem(device)

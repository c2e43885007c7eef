# pyright: basic
"""Why a model is computed by verl's stock engine."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, Qwen2Config

from spanloop.training.verl_plugin.engine import engine_choice
from spanloop.training.verl_plugin.engine.attention_kernels import Attended, CpuKernel, CudaKernel
from spanloop.training.verl_plugin.engine.engine_choice import use_flash_attention, why_stock
from spanloop.training.verl_plugin.engine.output_head import head_problem

CPU = torch.device("cpu")
SHAPE: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}


def reason(config: Any, **settings: int) -> str:
    return why_stock(config, torch.bfloat16, CPU, sequence_parallel=settings.get("sequence_parallel", 1))


def test_models_with_plain_causal_attention_are_packed() -> None:
    assert reason(LlamaConfig(**SHAPE)) == ""
    assert reason(Qwen2Config(**SHAPE)) == ""


def test_what_trees_cannot_compute_is_named() -> None:
    assert "models of type 'mistral'" in reason(MistralConfig(**SHAPE))
    sliding = Qwen2Config(**SHAPE, use_sliding_window=True, max_window_layers=1, num_hidden_layers=3)
    assert "do not attend to the whole past" in reason(sliding)
    assert "attention dropout" in reason(LlamaConfig(**SHAPE, attention_dropout=0.1))
    assert "2 ranks share each row" in reason(LlamaConfig(**SHAPE), sequence_parallel=2)


def test_a_kernel_that_fails_or_computes_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = CpuKernel.forward

    def halved(*arguments: Any, **settings: Any) -> Attended:
        attended = forward(*arguments, **settings)
        return attended._replace(output=attended.output / 2)

    monkeypatch.setattr(CpuKernel, "forward", halved)
    assert "self-test of its kernels failed: output differs from float32 by" in reason(LlamaConfig(**SHAPE))

    def refused(*_: Any, **__: Any) -> Attended:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nTraceback")

    monkeypatch.setattr(CpuKernel, "forward", refused)
    assert reason(LlamaConfig(**SHAPE)) == (
        "the self-test of its kernels failed: FlashAttention only supports Ampere GPUs or newer."
    )


def test_torch_merges_partial_results_where_triton_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CudaKernel, "is_fused", True)
    monkeypatch.setattr(
        engine_choice, "_self_test", lambda *_: "Failed to find C compiler." if CudaKernel.is_fused else ""
    )
    assert why_stock(LlamaConfig(**SHAPE), torch.bfloat16, torch.device("cuda"), sequence_parallel=1) == ""
    assert (
        capsys.readouterr().out == "spanloop: torch merges partial results of attention: Failed to find C compiler.\n"
    )


def test_an_output_head_with_an_adapter_or_a_bias_is_named() -> None:
    assert head_problem(torch.nn.Linear(2, 3, bias=False)) == ""
    assert head_problem(torch.nn.Linear(2, 3)) == "its output head has a bias"
    assert head_problem(torch.nn.Sequential()) == "its output head is Sequential, not Linear"


def test_flash_attention_is_used_on_cuda_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []

    class Model:
        set_attn_implementation = staticmethod(chosen.append)

    monkeypatch.setattr(engine_choice, "is_flash_attn_2_available", lambda: True)
    assert not use_flash_attention(Model(), CPU)
    assert use_flash_attention(Model(), torch.device("cuda"))
    monkeypatch.setattr(engine_choice, "is_flash_attn_2_available", lambda: False)
    assert not use_flash_attention(Model(), torch.device("cuda"))
    assert chosen == ["flash_attention_2"]

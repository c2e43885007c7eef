# pyright: basic
"""Compute norms, gates and rotary embeddings of a decoder's layers by one kernel each.

On CUDA transformers' code for these takes several passes over memory and keeps their results for the backward pass.
The operations and their gradients are the same; the numbers are rounded fewer times. A model on a CPU keeps
transformers' code.
"""

import sys
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.functional import silu

_RMS_NORM: Any = torch.ops.aten._fused_rms_norm  # noqa: SLF001 - autocast computes the public function in float32


def fuse_layers(model: Any, device: torch.device) -> str:
    """Replace what a model's layers compute by fused kernels, where they do it right; return why not, or nothing.

    Args:
        model: A causal model of transformers with RMS norms and gated feed-forward networks.
        device: Where it computes.
    """
    if device.type != "cuda" or find_spec("triton") is None:
        return "" if device.type == "cpu" else "Triton is not installed"
    problem = fusion_problem(device)
    if not problem:
        install(model)
    return problem


def install(model: Any) -> None:
    """Replace the forward pass of norms and gates, and the function of rotary embeddings."""
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = _Norm(module)
        elif hasattr(module, "gate_proj") and module.act_fn.__class__.__name__ in {"SiLU", "SiLUActivation"}:
            module.forward = _GatedNetwork(module)
    code: Any = sys.modules[type(model).__module__]
    if not isinstance(code.apply_rotary_pos_emb, _Rotary):
        code.apply_rotary_pos_emb = _Rotary(code.apply_rotary_pos_emb)


class _Norm:
    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalise, with the weight in the type of the states."""
        weight = self._module.weight.to(hidden_states.dtype)
        normalised: torch.Tensor = _RMS_NORM(hidden_states, list(weight.shape), weight, self._module.variance_epsilon)[
            0
        ]
        return normalised


class _GatedNetwork:
    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Compute the feed-forward network."""
        module = self._module
        gated: Any = Gated.apply(module.gate_proj(hidden_states), module.up_proj(hidden_states))  # type: ignore[no-untyped-call]
        output: torch.Tensor = module.down_proj(gated)
        return output


class Gated(torch.autograd.Function):
    """``(gate, up) -> silu(gate) * up``, in one pass over memory."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Keep both inputs."""
        from .triton_kernels import gated  # noqa: PLC0415 - Triton is there beside CUDA only

        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        return gated(gate, up)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients of both inputs."""
        from .triton_kernels import gated_backward  # noqa: PLC0415

        return gated_backward(grads[0].contiguous(), *ctx.saved_tensors)


class Rotated(torch.autograd.Function):
    """``(states, cosine, sine) -> rotated states``; the backward pass rotates back."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Keep the angles."""
        from .triton_kernels import rotate  # noqa: PLC0415 - Triton is there beside CUDA only

        ctx.save_for_backward(cosine, sine)
        return rotate(states.contiguous(), cosine, sine, 1.0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[torch.Tensor, None, None]:
        """Return the gradient of the states."""
        from .triton_kernels import rotate  # noqa: PLC0415

        cosine, sine = ctx.saved_tensors
        return rotate(grads[0].contiguous(), cosine, sine, -1.0), None, None


class _Rotary:
    """transformers' ``apply_rotary_pos_emb``; a batch of one packed sequence is rotated by the kernel."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        cosine: torch.Tensor,
        sine: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Rotate queries and keys of shape (1, heads, tokens, size) by angles of shape (1, tokens, size)."""
        if query.shape[0] != 1 or args or kwargs:
            return self._original(query, key, cosine, sine, *args, **kwargs)
        angles = cosine[0].contiguous(), sine[0].contiguous()
        rotated: list[Any] = [Rotated.apply(each.squeeze(0).transpose(0, 1), *angles) for each in (query, key)]  # type: ignore[no-untyped-call]
        return [each.transpose(0, 1)[None] for each in rotated]


def fusion_problem(device: torch.device) -> str:
    """Return why the fused kernels do not compute what they should on ``device``; empty when they do."""
    draw = torch.Generator().manual_seed(0)
    tensors = [torch.randn(24, 3, 64, generator=draw).to(device, torch.bfloat16) for _ in range(4)]
    angles = torch.rand(24, 32, generator=draw).repeat(1, 2).to(device)
    try:
        computed = _results(tensors, angles, fused=True)
    except Exception as error:  # noqa: BLE001 - torch, CUDA and Triton each raise their own kinds; torch's code is there
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    for number, (one, other) in enumerate(zip(computed, _results(tensors, angles, fused=False), strict=True)):
        difference = float((one.float() - other).norm() / other.norm())
        if not difference <= _TOLERANCE:
            return f"result {number} of the self-test differs from float32 by {difference:.1e}"
    return ""


_TOLERANCE = 2e-2
"""Of the norm; bfloat16 has 5e-3."""


def _results(tensors: list[torch.Tensor], angles: torch.Tensor, *, fused: bool) -> list[torch.Tensor]:
    dtype = torch.bfloat16 if fused else torch.float32
    first, second, upstream, weights = (tensor.to(dtype).detach().requires_grad_() for tensor in tensors)
    cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
    weight = weights[0, 0]
    with torch.enable_grad():
        if fused:
            gate: Any = Gated.apply(first, second)  # type: ignore[no-untyped-call]
            turned: Any = Rotated.apply(first, cosine, sine)  # type: ignore[no-untyped-call]
            norm = _RMS_NORM(second, [second.shape[-1]], weight, 1e-6)[0]
        else:
            gate = silu(first) * second
            left, right = first.chunk(2, -1)
            turned = first * cosine[:, None] + torch.cat([-right, left], -1) * sine[:, None]
            norm = second * torch.rsqrt(second.square().mean(-1, keepdim=True) + 1e-6) * weight
        outputs = [gate, turned, norm]
        gradients = torch.autograd.grad(outputs, [first, second, weights], [upstream] * 3)
    return [each.detach() for each in (*outputs, *gradients)]

# pyright: basic
"""AdamW with moments in bfloat16, which take half the memory of float32; weights and the update itself stay float32.

verl builds it by the name of this module (``optimizer_impl``). The moments of Loshchilov and Hutter 2019 ("Decoupled
Weight Decay Regularization", algorithm 2) are updated in float32 and rounded stochastically: up with the probability of
the share that the eight bits of the mantissa cut off (Gupta et al. 2015, "Deep Learning with Limited Numerical
Precision"). Rounding to the nearest would stop the second moment: with ``beta2 = 0.999`` it changes by at most a
thousandth of itself in a step towards zero, and half the distance of two bfloat16 numbers is two thousandths.

The noise depends on the step alone, so a resumed job continues as if it had not stopped.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

_MOMENTS = ("exp_avg", "exp_avg_sq")
_CUT_BITS = 16
"""A bfloat16 is the upper half of a float32."""


class AdamW(torch.optim.Optimizer):
    """AdamW with moments in bfloat16.

    Args:
        params: Float32 parameters, sharded or whole.
        lr: Learning rate.
        betas: Decay of the first and second moment.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled weight decay.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load moments; torch casts them to the precision of the parameters."""
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state.update({name: state[name].bfloat16() for name in _MOMENTS})

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state |= {name: torch.zeros_like(parameter, dtype=torch.bfloat16) for name in _MOMENTS}
            state["step"] = 0
        state["step"] += 1
        beta1, beta2 = group["betas"]
        weights, gradient = _local(parameter), _local(parameter.grad).float()
        first, second = (_local(state[name]) for name in _MOMENTS)
        mean = first.float().lerp_(gradient, 1 - beta1)
        square = second.float().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        noise = torch.Generator(weights.device).manual_seed(state["step"])
        round_into(first, mean, noise)
        round_into(second, square, noise)
        weights.mul_(1 - group["lr"] * group["weight_decay"])
        scale = square.div_(1 - beta2 ** state["step"]).sqrt_().add_(group["eps"])
        weights.addcdiv_(mean, scale, value=-group["lr"] / (1 - beta1 ** state["step"]))


def round_into(target: torch.Tensor, values: torch.Tensor, noise: torch.Generator) -> None:
    """Round float32 ``values`` stochastically into the bfloat16 tensor ``target``; the mean of the error is zero."""
    bits = values.view(torch.int32)
    cut_off = torch.randint(1 << _CUT_BITS, bits.shape, dtype=torch.int32, device=bits.device, generator=noise)
    rounded_bits = (bits + cut_off) & -(1 << _CUT_BITS)
    target.copy_(rounded_bits.view(torch.float32))


def _local(tensor: Any) -> torch.Tensor:
    """Return this rank's part of a sharded tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor

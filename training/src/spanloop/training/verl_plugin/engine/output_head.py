# pyright: basic
"""Let a causal model's output head return what the loss needs of selected tokens in place of all logits.

The head runs within the model's forward pass, because FSDP2 holds its whole weight only there.
"""

from typing import Any, NamedTuple

import torch

from .token_logprobs import TokenLogprobs, token_logprobs


class SelectedTokens(NamedTuple):
    """The arguments of :func:`~.token_logprobs.token_logprobs` besides hidden states and weight."""

    rows: torch.Tensor
    labels: torch.Tensor
    temperature: float
    with_entropy: bool


class OutputHead:
    """The output head of a model, whose forward pass computes log-probabilities instead of logits.

    Args:
        linear: The head; it has no bias.
    """

    selected: SelectedTokens | None = None
    """Of the next forward pass."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        self.linear = linear
        forward: Any = self._forward
        linear.forward = forward  # type: ignore[method-assign]

    def _forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Take hidden states of shape (1, positions, size); return log-probabilities and entropies of the tokens."""
        selected = self.selected
        if selected is None:
            raise ValueError("the output head got hidden states without selected tokens")
        self.selected = None
        logprobs, entropies = token_logprobs(
            hidden[0],
            self.linear.weight,
            selected.rows,
            selected.labels,
            selected.temperature,
            with_entropy=selected.with_entropy,
        )
        return torch.stack([logprobs, entropies[selected.rows] if selected.with_entropy else logprobs.detach()])

    @staticmethod
    def unpacked(output: Any) -> TokenLogprobs:
        """Return log-probabilities, and entropies where they were requested, of the tokens of the model's output."""
        logprobs, entropies = output.logits
        return TokenLogprobs(logprobs, entropies.detach())


def head_problem(head: Any) -> str:
    """Return why :class:`OutputHead` cannot stand for a head; empty when it can."""
    if type(head) is not torch.nn.Linear:
        return f"its output head is {type(head).__name__}, not Linear"
    return "its output head has a bias" if head.bias is not None else ""

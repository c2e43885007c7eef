"""Tokens of a token row as cells: id, role in the loss, log probability, text."""

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

TokenRole = Literal["prompt", "sampled", "left out", "given"]

UNSURE_BELOW: Final = -3.0
"""Natural log probability at and below which a sampled token has full colour: about 5 %."""


@dataclass(frozen=True, slots=True)
class TokenCell:
    """One token of a token row."""

    position: int
    """From 0 within the response; negative within the prompt, -1 its last token."""
    token_id: int
    role: TokenRole
    """``sampled``: written by the policy, in the loss. ``left out``: sampled in a step that is not trained on.
    ``given``: between its turns. Both are masked out."""
    logprob: float | None
    """Natural log; None where the policy did not sample the token or no log probability is known."""
    text: str = ""
    """Decoded text; empty when the policy version's tokenizer is not available."""

    @property
    def surprise(self) -> float:
        """0 for a certain token, 1 for an unlikely one."""
        if self.logprob is None or not math.isfinite(self.logprob):
            return 0.0
        return min(1.0, max(0.0, self.logprob / UNSURE_BELOW))


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """A window of one token row, as stored."""

    prompt_tokens: int
    response_tokens: int
    first_token: int
    """Index within the response of the window's first token."""
    prompt_tail: tuple[int, ...]
    response: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    sampled: tuple[bool, ...] = ()
    """Whether a step sampled the token, trained on or not; empty where only the mask tells."""

    def mismatch(self) -> str:
        """Return the lengths of arrays that are not parallel; empty when they are."""
        lengths = {"tokens": len(self.response), "mask": len(self.loss_mask), "logprobs": len(self.logprobs)}
        if len(set(lengths.values())) == 1:
            return ""
        return ", ".join(f"{length} {name}" for name, length in lengths.items())

    def cells(self) -> list[TokenCell]:
        """Return the window as cells; a token without mask counts as given, as in training."""
        tail = len(self.prompt_tail)
        prompt = [TokenCell(index - tail, token_id, "prompt", None) for index, token_id in enumerate(self.prompt_tail)]
        response: list[TokenCell] = []
        for index, token_id in enumerate(self.response):
            is_sampled = index < len(self.loss_mask) and self.loss_mask[index] == 1
            logprob = self.logprobs[index] if is_sampled and index < len(self.logprobs) else None
            is_left_out = index < len(self.sampled) and self.sampled[index]
            role: TokenRole = "sampled" if is_sampled else "left out" if is_left_out else "given"
            response.append(TokenCell(self.first_token + index, token_id, role, logprob))
        return prompt + response


def with_texts(cells: list[TokenCell], texts: list[str]) -> list[TokenCell]:
    """Return the cells with ``texts``, which are parallel to them."""
    return [replace(cell, text=text) for cell, text in zip(cells, texts, strict=True)]

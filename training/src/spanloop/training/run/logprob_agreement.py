# pyright: basic, reportPrivateImportUsage=false
"""Compare recomputed log-probabilities of a model with those that the gateway captured while sampling.

Importance ratios compare the trainer's probability of a token with the sampler's.
"""

from pathlib import Path

import numpy as np
import polars as pl
import torch
from transformers import AutoModelForCausalLM

from spanloop.foundation.logprob_agreement import LogprobAgreement, agreement


def logprob_agreement(
    folder: Path, rows: pl.DataFrame, *, temperature: float = 1.0, bfloat16: bool = False
) -> LogprobAgreement:
    """Recompute the log-probabilities of ``rows``, one unpadded row at a time.

    Args:
        folder: A Hugging Face folder with the weights that sampled.
        rows: ``prompt_token_ids``, ``response_token_ids`` and ``logprobs`` (parallel to the response), of transitions
            or trajectories; with a column ``loss_mask`` only tokens where it is 1 count.
        temperature: Sampling temperature; no other parameter may change the distribution (top-p, penalties, …).
        bfloat16: Compute as a trainer does on a CPU with bfloat16 instructions (``spanloop.foundation.cpu_features``)
            or on a GPU; else in float32.

    Raises:
        ValueError: The lists of a row have different lengths.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16 if bfloat16 else torch.float32)
    model.eval()
    names = [
        "prompt_token_ids",
        "response_token_ids",
        "logprobs",
        *(["loss_mask"] if "loss_mask" in rows.columns else []),
    ]
    recomputed: list[float] = []
    expected: list[float] = []
    for prompt, response, captured, *rest in rows.select(names).iter_rows():
        mask = np.asarray(rest[0] if rest else [1] * len(response), dtype=bool)
        if not len(response) == len(captured) == len(mask) or not prompt:
            raise ValueError(
                f"a row of {len(prompt)} prompt tokens, {len(response)} response tokens, {len(captured)} logprobs"
                f" and a mask of {len(mask)}: expected a prompt, and the others equally long"
            )
        if response:
            expected += np.asarray(captured, dtype=np.float64)[mask].tolist()
            recomputed += response_logprobs(model, prompt, response, temperature)[mask].tolist()
    return agreement(recomputed, expected)


def response_logprobs(
    model: torch.nn.Module, prompt: list[int], response: list[int], temperature: float = 1.0
) -> np.ndarray:
    """Return the log-probability of each response token; float64, shape (response,)."""
    with torch.no_grad():
        # The position before a token predicts it, so the last position is not needed.
        tokens = torch.tensor([[*prompt, *response]], device=next(model.parameters()).device)
        logits = model(tokens, logits_to_keep=len(response) + 1).logits[0, :-1].cpu()
        scores = (logits.float() / temperature).log_softmax(-1)
        logprobs: np.ndarray = scores.gather(1, torch.tensor(response)[:, None]).squeeze(1).double().numpy()
    return logprobs

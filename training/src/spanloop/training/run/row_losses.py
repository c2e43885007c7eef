# pyright: basic
"""Loss of each row under a model: ``python -m spanloop.training.run.row_losses MODEL DEVICE FOLDER``.

Reads ``rows.parquet`` of the folder and writes ``losses.json``. One row is one forward pass: no padding, and the memory
of the longest row.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import polars as pl

from spanloop.training.run.planning import training_threads
from spanloop.training.spec.choices import Device

from ..verl_plugin.compute import Compute, local_compute
from ..verl_plugin.main import die_with_parent


def row_losses(model_path: Path, compute: Compute, rows: pl.DataFrame) -> list[float]:
    """Return the mean negative log-probability of each row's trained tokens, in nats.

    Args:
        model_path: Hugging Face folder.
        compute: Device and precision.
        rows: With ``prompt_token_ids``, ``response_token_ids`` and ``loss_mask``, which has a 1.
    """
    import torch  # noqa: PLC0415 - after the threads are set
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    from ..verl_plugin.engine.token_logprobs import token_logprobs  # noqa: PLC0415

    dtype = torch.bfloat16 if compute.bfloat16 else torch.float32
    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(model_path, dtype=dtype, attn_implementation="sdpa").to(str(compute.device)).eval()
    losses: list[float] = []
    columns = rows.select("prompt_token_ids", "response_token_ids", "loss_mask")
    with torch.inference_mode():
        for prompt, response, mask in columns.iter_rows():
            tokens = torch.tensor([*prompt, *response], device=model.device)
            places = torch.tensor([len(prompt) + place for place, kept in enumerate(mask) if kept], device=model.device)
            # the hidden state before a token predicts it
            hidden = model.base_model(tokens[None], use_cache=False).last_hidden_state[0, places - 1]
            selected = torch.arange(len(places), device=model.device)
            logprobs = token_logprobs(hidden, model.get_output_embeddings().weight, selected, tokens[places]).logprobs
            losses.append(-float(logprobs.double().mean()))
    return losses


def main(model_path: Path, device: Device, folder: Path) -> None:
    """Compute the losses of the rows in ``folder``."""
    die_with_parent()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    os.environ["OMP_NUM_THREADS"] = str(training_threads(whole_machine=False))
    losses = row_losses(model_path, local_compute(device), pl.read_parquet(folder / "rows.parquet"))
    (folder / "losses.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Device(sys.argv[2]), Path(sys.argv[3]))

# pyright: basic
# torch and verl are half annotated
"""DPO on verl's engine, without Ray: gradients, reference and resume."""

import math
import random
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

from spanloop.training.dataset.pairs import Pairing, Side
from spanloop.training.verl_plugin.supervised.reference_logprobs import REFERENCE_NAME, Reference

from ..debug_training import debug_plan, train_here, trained_weights
from ..selection_rows import row, rules, select

BETA = 0.1


def write_pairs(folder: Path) -> pl.DataFrame:
    """Write two pairs of each of two groups; a better attempt has two rows, and the middle of a row is a tool's."""
    rng = random.Random(0)
    rows = []
    for group in range(2):
        prompt = [rng.randrange(3, 300) for _ in range(rng.randrange(20, 40))]
        for number in range(4):
            for index in range(1 + number % 2):
                response = [rng.randrange(3, 300) for _ in range(rng.randrange(8, 20))]
                mask = [0 if 2 <= token < 4 else 1 for token in range(len(response))]
                tokens: dict[str, Any] = {
                    "prompt_token_ids": prompt + [7] * index, "response_token_ids": response, "loss_mask": mask,
                    "sampled_ends": [len(response)], "logprobs": [],
                }  # fmt: skip
                rows.append(row(f"g{group}-e{number}", f"g{group}", float(number % 2), index, **tokens))
    selected = select(rows, rules("dpo", vocabulary_size=400, pairing=Pairing(0, 2, 0))).rows
    folder.mkdir(parents=True, exist_ok=True)
    selected.write_parquet(folder / "dataset.parquet")
    return selected


def plain_sums(model: Any, rows: pl.DataFrame) -> list[torch.Tensor]:
    """The sum over the trained tokens of each row: a forward pass of its own, by transformers alone."""
    sums = []
    columns = ("prompt_token_ids", "response_token_ids", "loss_mask")
    for prompt, response, mask in rows.select(columns).iter_rows():
        scores = model(torch.tensor([prompt + response])).logits[0].log_softmax(-1)
        at = torch.arange(len(prompt) - 1, len(prompt) + len(response) - 1)
        sums.append((scores[at, torch.tensor(response)] * torch.tensor(mask)).sum())
    return sums


def plain_loss(sums: list[torch.Tensor], reference: list[torch.Tensor], rows: pl.DataFrame) -> torch.Tensor:
    """Rafailov et al. 2023, equation 7, over the sums of each pair's episodes."""
    margins: dict[int, torch.Tensor] = {}
    for (pair, side), policy, base in zip(rows.select("pair_id", "side").iter_rows(), sums, reference, strict=True):
        sign = 1 if side == Side.CHOSEN else -1
        margins[pair] = margins.get(pair, torch.tensor(0.0)) + sign * BETA * (policy - base)
    return torch.stack([-torch.nn.functional.logsigmoid(margin) for margin in margins.values()]).mean()


def load(path: Path) -> Any:
    loader: Any = AutoModelForCausalLM
    return loader.from_pretrained(path, dtype=torch.float32)


def recorded_gradients(into: list[dict[str, torch.Tensor]]) -> Any:
    """Patch the engine's optimiser step so that it records the gradients that it finds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from spanloop.training.verl_plugin.engine.tree_engine import PolicyTreeEngine  # noqa: PLC0415 - warns of engines that are not installed
    engine: Any = PolicyTreeEngine
    stock = engine.optimizer_step

    def step(self: Any) -> Any:
        grads = {name: parameter.grad for name, parameter in self.module.named_parameters()}
        into.append(
            {name: getattr(grad, "full_tensor", lambda grad=grad: grad)().clone() for name, grad in grads.items()}
        )
        return stock(self)

    return patch.object(engine, "optimizer_step", step)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_engine_and_plain_transformers_agree_and_a_resumed_job_ends_like_one_that_was_never_killed(
    tiny_model: Path, tmp_path: Path
) -> None:
    rows = write_pairs(tmp_path)
    # micro-batches of one row: the sides of a pair are computed apart
    plan = debug_plan(tiny_model, tmp_path, kind="dpo", steps=2, batch_size=4, micro_batch_tokens=40, dpo_beta=BETA)
    gradients: list[dict[str, torch.Tensor]] = []
    with recorded_gradients(gradients):
        steps = train_here(plan)

    base = load(tiny_model)
    with torch.no_grad():
        reference = plain_sums(base, rows)
    stored = Reference.model_validate_json((tmp_path / REFERENCE_NAME).read_bytes())
    assert stored.logprobs == pytest.approx([float(value) for value in reference], abs=1e-4)

    weights_after_1 = trained_weights(plan, step=1)
    for step, model in ((0, base), (1, load(tiny_model))):
        if step:
            model.load_state_dict(weights_after_1, strict=False)
            model.tie_weights()
        model.zero_grad()
        loss = plain_loss(plain_sums(model, rows), reference, rows)
        loss.backward()
        assert steps[step].values["train/loss"] == pytest.approx(loss.item(), abs=1e-6)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[step][name], parameter.grad, atol=1e-7, rtol=1e-6)
    assert steps[0].values["train/loss"] == pytest.approx(math.log(2), abs=1e-5)
    assert steps[1].values["dpo/margin"] > 0

    finished = trained_weights(plan, step=2)
    (plan.checkpoint_dir / "global_step_2" / "COMPLETE").unlink()
    written = (tmp_path / REFERENCE_NAME).stat().st_mtime_ns
    resumed = plan.model_copy(
        update={"resume_from": plan.checkpoint_dir / "global_step_1", "metrics_path": tmp_path / "metrics-2.jsonl"}
    )
    again = train_here(resumed)
    assert [step.step for step in again] == [1, 2, 2]
    assert again[2].values["train/loss"] == pytest.approx(steps[1].values["train/loss"], rel=1e-9)
    assert (tmp_path / REFERENCE_NAME).stat().st_mtime_ns == written
    for name, tensor in trained_weights(resumed, step=2).items():
        torch.testing.assert_close(tensor, finished[name], atol=1e-6, rtol=0)

import math
import random
from pathlib import Path

import polars as pl
import pytest

from spanloop.foundation.logprob_agreement import LogprobAgreement
from spanloop.training.run.logprob_agreement import logprob_agreement

from ..training_seeding import token_logprobs, trajectory


def rows(model: Path, temperature: float = 1.0) -> pl.DataFrame:
    """Rows with a stretch of tool output, of which the captured log-probabilities are zero."""
    rng = random.Random(3)
    made = [
        trajectory(
            model,
            rng,
            episode=f"e{number}",
            group="g",
            row_number=0,
            prompt=[5, 6, 7 + number],
            temperature=temperature,
        )
        for number in range(4)
    ]
    return pl.DataFrame([{name: row[name] for name in NAMES} for row in made])


NAMES = ("prompt_token_ids", "response_token_ids", "loss_mask", "logprobs")


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_weights_that_sampled_agree(tiny_model: Path, temperature: float) -> None:
    captured = rows(tiny_model, temperature)
    found = logprob_agreement(tiny_model, captured, temperature=temperature)
    assert found.tokens == sum(sum(mask) for mask in captured["loss_mask"].to_list())
    assert 0 <= found.median <= found.p99 <= found.largest < 1e-4
    assert found.agrees


def test_bfloat16_is_coarser_and_still_within_the_tolerance(tiny_model: Path) -> None:
    found = logprob_agreement(tiny_model, rows(tiny_model), bfloat16=True)
    assert 1e-6 < found.mean < found.largest
    assert found.agrees


def test_another_temperature_or_other_tokens_do_not_agree(tiny_model: Path) -> None:
    captured = rows(tiny_model)
    assert not logprob_agreement(
        tiny_model, captured.with_columns(pl.col("logprobs").list.eval(pl.element() - 0.2))
    ).agrees
    assert not logprob_agreement(tiny_model, captured, temperature=0.3).agrees
    swapped = captured.with_columns(pl.col("response_token_ids").list.reverse())
    assert logprob_agreement(tiny_model, swapped).mean > logprob_agreement(tiny_model, captured).mean


def test_without_a_mask_every_token_counts(tiny_model: Path) -> None:
    response = [8, 9, 10]
    captured = token_logprobs(tiny_model, [5, 6], response)
    frame = pl.DataFrame({"prompt_token_ids": [[5, 6]], "response_token_ids": [response], "logprobs": [captured]})
    assert logprob_agreement(tiny_model, frame)[0] == 3


def test_nothing_to_compare_is_no_agreement(tiny_model: Path) -> None:
    found = logprob_agreement(tiny_model, rows(tiny_model).clear())
    assert isinstance(found, LogprobAgreement)
    assert found.tokens == 0
    assert math.isnan(found.mean)
    assert not found.agrees


def test_rows_that_do_not_run_parallel_are_refused(tiny_model: Path) -> None:
    with pytest.raises(ValueError, match="expected a prompt, and the others equally long"):
        logprob_agreement(tiny_model, rows(tiny_model).with_columns(pl.col("logprobs").list.head(2)))

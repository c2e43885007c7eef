"""The loss of rows under the base equals an independent forward pass, and a failure of the pass fails the job."""

from pathlib import Path

import polars as pl
import pytest

from spanloop.foundation.errors import JobError
from spanloop.store import Store
from spanloop.training.dataset.base_losses import base_losses
from spanloop.training.dataset.export import export_dataset
from spanloop.training.dataset.manifest import DATA_NAME
from spanloop.training.models.base_model import read_base_model
from spanloop.training.run.row_losses import row_losses
from spanloop.training.spec.choices import Coreset, Device
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.verl_plugin.compute import Compute

from ..training_seeding import seed_groups, token_logprobs

ROWS = pl.DataFrame(
    {
        "prompt_token_ids": [[5, 6, 7], [9]],
        "response_token_ids": [[10, 11, 12, 13], [20, 21]],
        "loss_mask": [[1, 0, 1, 1], [0, 1]],
    }
)


def expected(model: Path, rows: pl.DataFrame) -> list[float]:
    losses: list[float] = []
    for prompt, response, mask in rows.select(ROWS.columns).iter_rows():
        logprobs = token_logprobs(model, prompt, response)
        losses.append(-sum(value for value, kept in zip(logprobs, mask, strict=True) if kept) / sum(mask))
    return losses


def test_a_loss_is_the_mean_over_the_trained_tokens(tiny_model: Path) -> None:
    losses = row_losses(tiny_model, Compute(Device.CPU, bfloat16=False), ROWS)
    assert losses == pytest.approx(expected(tiny_model, ROWS), abs=1e-5)


@pytest.mark.slow
def test_a_coreset_by_loss_takes_the_groups_that_the_base_finds_hardest(
    store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    base = read_base_model("tiny@v1", tiny_model)
    settings = {"base": "tiny", "coreset": Coreset.LOSS, "device": Device.CPU}
    losses: dict[int, pl.DataFrame] = {}
    for size in (4, 2):
        spec = JobSpec.model_validate(settings | {"coreset_size": size})
        manifest = export_dataset(store, spec, base, tokenizer_of=lambda _: base.tokenizer, job_id="j", folder=tmp_path)
        rows = pl.read_parquet(tmp_path / DATA_NAME).with_columns(tokens=pl.col("loss_mask").list.sum())
        assert rows["base_loss"].to_list() == pytest.approx(expected(tiny_model, rows), abs=0.05)  # bfloat16
        assert [(report.kept, report.available) for report in manifest.strategies] == [(size, 4)]
        by_group = rows.group_by("group_id").agg(loss=pl.col("base_loss").dot("tokens") / pl.col("tokens").sum())
        losses[size] = by_group.sort("loss")
    assert set(losses[2]["group_id"]) == set(losses[4]["group_id"].tail(2))


@pytest.mark.slow
def test_a_model_that_cannot_be_run_fails_the_job(tiny_model: Path, tmp_path: Path) -> None:
    base = read_base_model("tiny@v1", tiny_model)._replace(path=tmp_path)
    with pytest.raises(JobError, match="The loss of 2 rows under tiny@v1 cannot be computed") as caught:
        base_losses(base, Device.CPU, ROWS)
    assert "another coreset" in caught.value.next_step

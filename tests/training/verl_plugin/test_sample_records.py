"""Records of a batch: the numbers of each row against NumPy, and their sum against verl's loss."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spanloop.training.recipes.choices import LossAggregation
from spanloop.training.recipes.registry import find_recipe
from spanloop.training.verl_plugin.early_stopping import MaskedBatchError

pytestmark = pytest.mark.filterwarnings("ignore")

LENGTHS = (3, 5, 2)
SCALE = 20


@pytest.fixture(scope="module")
def plugin() -> Any:
    """Imported late: verl warns about itself, and takes seconds."""
    return importlib.import_module("spanloop.training.verl_plugin.sample_records")


def nested(values: list[Any]) -> torch.Tensor:
    tensors = [torch.tensor(each) for each in values]
    library: Any = torch.nested
    made: torch.Tensor = library.as_nested_tensor(tensors, layout=torch.jagged)
    return made


@pytest.fixture
def batch() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    columns = {name: [rng.normal(size=length).astype("float32") for length in LENGTHS] for name in ("a", "old", "new")}
    masks = [[1, 0, 1], [0, 1, 1, 1, 0], [1, 1]]
    return columns | {
        "mask": masks,
        "data": {
            "response_mask": nested(masks),
            "advantages": nested(columns["a"]),
            "rollout_log_probs": nested(columns["old"]),
            "sample": torch.tensor([[4], [0], [9]]),
        },
    }


@pytest.mark.parametrize("mode", list(LossAggregation))
@pytest.mark.parametrize("kind", ["dr_grpo", "gspo"])
def test_a_rows_numbers_are_those_of_numpy_and_add_up_to_verls_loss(
    mode: LossAggregation, kind: str, plugin: Any, batch: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "samples-1.jsonl"
    plugin.PolicyRecords(path, 7, find_recipe(kind)(), str(mode), SCALE).write(batch["data"], nested(batch["new"]))
    line = json.loads(path.read_text())
    assert (line["step"], line["sample"], line["tokens"]) == (7, [4, 0, 9], [2, 3, 2])
    total_tokens, rows = 7, 3
    masks: list[Any] = [np.array(each, dtype=bool) for each in batch["mask"]]
    for row, mask in enumerate(masks):
        columns: list[Any] = [batch[name][row][mask].astype("float64") for name in ("a", "old", "new")]
        advantage, old, new = columns
        ratio = np.exp(new - old)
        used: Any = np.exp((new - old).mean()).clip(max=2.0) if kind == "gspo" else ratio.clip(max=2.0)
        token_losses = -advantage * used
        expected = {
            "advantage": advantage.mean(),
            "old_logprob": old.mean(),
            "new_logprob": new.mean(),
            "importance_mean": ratio.mean(),
            "importance_max": ratio.max(),
            "loss": {
                LossAggregation.TOKEN_MEAN: token_losses.sum() / total_tokens,
                LossAggregation.SEQ_MEAN_TOKEN_SUM: token_losses.sum() / rows,
                LossAggregation.SEQ_MEAN_TOKEN_MEAN: token_losses.mean() / rows,
                LossAggregation.SEQ_MEAN_TOKEN_SUM_NORM: token_losses.sum() / rows / SCALE,
            }[mode],
        }
        assert {name: line[name][row] for name in expected} == pytest.approx(expected, abs=1e-5)


def test_two_ranks_share_a_file_and_its_losses_are_shares_of_the_whole_batch(
    plugin: Any, batch: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "samples-1.jsonl"
    records = plugin.PolicyRecords(path, 1, find_recipe("dr_grpo")(), str(LossAggregation.TOKEN_MEAN), SCALE)
    for _ in range(2):
        records.write(batch["data"], nested(batch["new"]), batch_tokens=14, batch_rows=6)
    records.write(batch["data"], nested(batch["new"]))
    first, second, alone = map(json.loads, path.read_text().splitlines())
    assert sum(first["loss"]) + sum(second["loss"]) == pytest.approx(sum(alone["loss"]))


def test_sft_records_each_rows_mean_loss_once_over_micro_batches(plugin: Any, tmp_path: Path) -> None:
    path = tmp_path / "samples-1.jsonl"
    recorder = plugin.SftRecorder(path, step=4)
    logprobs = nested([[-1.0, -2.0, -9.0], [-3.0, -4.0, -5.0, -9.0]])
    masks = nested([[0, 0, 1], [0, 1, 0, 1]])
    batches = [{"loss_mask": masks, "sample": torch.tensor(samples)} for samples in ([[5], [2]], [[7], [5]])]

    def sizes(*, model_output: Any, data: Any, dp_group: Any) -> tuple[int, int, Any]:
        return len(model_output), len(data), dp_group

    loss_fn = recorder.around_loss(sizes)

    def train_batch(data: Any) -> str:
        for batch in batches:
            assert loss_fn(model_output={"log_probs": logprobs}, data=batch, dp_group=None) == (1, 2, None)
        return f"trained {len(data)}"

    assert recorder.around_step(train_batch)(batches[0]) == "trained 2"
    line = json.loads(path.read_text())
    assert line == {"step": 5, "sample": [5, 2, 7], "tokens": [2, 2, 1], "loss": [4.0, 4.0, 2.0]}, (
        "5 was computed again"
    )


def test_a_batch_without_a_trained_token_ends_the_training_before_verl_divides_by_zero(
    plugin: Any, tmp_path: Path
) -> None:
    masked = {"loss_mask": nested([[0, 0], [0]]), "sample": torch.tensor([[0], [1]])}
    trained: list[Any] = []
    with pytest.raises(MaskedBatchError, match="the batch of step 3 has no trained token") as caught:
        plugin.SftRecorder(tmp_path / "samples.jsonl", step=2).around_step(trained.append)(masked)
    assert caught.value.last_step == 2
    assert trained == []
    plugin.require_trained_tokens(nested([[0, 0], [1]]), 3)

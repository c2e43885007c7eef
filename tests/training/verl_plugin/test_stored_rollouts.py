"""What reaches TransferQueue: a dictionary in its place holds what verl's workers would read."""

import importlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from omegaconf import OmegaConf

from spanloop.foundation.errors import JobError
from spanloop.training.recipes.choices import Credit
from spanloop.training.recipes.registry import find_recipe
from spanloop.training.verl_plugin.overrides.policy_gradient import STORED_ADVANTAGES

from ..dataset.test_token_advantages import random_rows, reference
from ..selection_rows import rules, select

pytestmark = pytest.mark.filterwarnings("ignore")


class Queue:
    """TransferQueue's calls, over a dictionary of tensors by key."""

    def __init__(self, stack: Any) -> None:
        self._stack = stack
        self.fields: dict[str, dict[str, Any]] = {}

    def kv_batch_put(self, *, keys: list[str], fields: Any, **_: Any) -> list[str]:
        for index, key in enumerate(keys):
            row = {name: fields[name][index] for name in fields.keys()}  # noqa: SIM118 - a TensorDict iterates over rows
            self.fields.setdefault(key, {}).update(row)
        return keys

    def kv_put(self, **_: Any) -> None:
        pass

    def kv_batch_get(self, *, keys: list[str], select_fields: list[str], **_: Any) -> Any:
        present = [name for name in select_fields if name in self.fields[keys[0]]]
        rows = self._stack([{name: self.fields[key][name] for name in present} for key in keys])
        nested: Any = torch.nested
        for name in present:
            # the queue's tensors are nested, also where all rows have one length
            if isinstance(rows[name], torch.Tensor) and not rows[name].is_nested:
                rows[name] = nested.as_nested_tensor(list(rows[name]), layout=torch.jagged)
        return rows


@pytest.fixture(scope="module")
def plugin() -> Any:
    """Imported late: verl and Ray warn about themselves, and take seconds."""
    return importlib.import_module("spanloop.training.verl_plugin.stored_rollouts")


@pytest.fixture
def queue(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue(plugin.list_of_dict_to_tensordict)
    monkeypatch.setattr(plugin, "tq", queue)
    return queue


class Batch:
    """verl's description of a batch: its keys in the queue."""

    partition_id = "train"

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)


def compute_advantage(plugin: Any, keys: list[str], *, bypass_mode: bool) -> dict[str, Any]:
    """The trainer's stage, without a trainer that Ray started; returns verl's metrics."""
    correction = {"rollout_is": "token", "rollout_is_threshold": 2.0, "bypass_mode": bypass_mode}
    algorithm = {"adv_estimator": STORED_ADVANTAGES, "rollout_correction": correction}
    trainer: Any = object.__new__(plugin.StoredTrainer)
    trainer.config = OmegaConf.create(
        {"algorithm": algorithm, "actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": "vanilla"}}}}
    )
    trainer.recipe = find_recipe("dr_grpo")()
    metrics: dict[str, Any] = {}
    trainer._compute_advantage(Batch(keys), metrics)
    return metrics


@pytest.mark.parametrize("credit", list(Credit))
@pytest.mark.parametrize("bypass_mode", [True, False])
def test_verl_gets_the_files_advantages_and_corrects_for_the_sampler(
    *, plugin: Any, queue: Queue, tmp_path: Path, credit: Credit, bypass_mode: bool
) -> None:
    for seed in range(10):
        queue.fields.clear()
        rng = np.random.default_rng(seed)
        rows, job = random_rows(random.Random(seed)), rules(credit=credit, group_size=3)
        expected, selected = reference(rows, job), select(rows, job).rows
        if not expected:
            continue
        selected.write_parquet(tmp_path / "dataset.parquet")
        groups = selected["group_id"].unique(maintain_order=True).to_list()
        plugin.StoredRollouts(tmp_path / "dataset.parquet").generate_sequences({"uid": groups, "group_id": groups})
        order = selected.select("group_id", "session", "row_number").rows()
        keys = [f"{group}_{session}_{number}" for group, session, number in order]
        assert queue.fields.keys() == set(keys)
        for key in keys:
            sampled = queue.fields[key]["rollout_log_probs"]
            shift = torch.tensor(rng.normal(0, 1, len(sampled)), dtype=torch.float32)
            queue.fields[key]["old_log_probs"] = sampled + shift
        metrics = compute_advantage(plugin, keys, bypass_mode=bypass_mode)
        assert bool(metrics) is not bypass_mode
        for key, identity in zip(keys, selected["trajectory_id"], strict=True):
            row, (mask, advantages) = queue.fields[key], expected[identity]
            assert row["response_mask"].tolist() == row["loss_mask"].tolist() == mask.tolist()
            np.testing.assert_allclose(row["advantages"].numpy(), advantages, rtol=0, atol=1e-5)
            if not bypass_mode:
                ratio = np.exp((row["old_log_probs"] - row["rollout_log_probs"]).numpy())
                weights = np.minimum(ratio, 2.0) * mask
                np.testing.assert_allclose(row["rollout_is_weights"].numpy(), weights, rtol=0, atol=1e-5)


def test_a_dataset_of_an_earlier_version_is_refused(plugin: Any, tmp_path: Path) -> None:
    pl.DataFrame({"group_id": ["g"]}).write_parquet(tmp_path / "dataset.parquet")
    with pytest.raises(JobError, match="has no advantages"):
        plugin.StoredRollouts(tmp_path / "dataset.parquet")

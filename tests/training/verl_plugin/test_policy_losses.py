"""The losses that verl computes from an exported dataset, against NumPy: file, queue, verl's loss, gradient."""

import importlib
import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from spanloop.training.recipes.registry import find_recipe
from spanloop.training.spec.choices import Device
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.verl_plugin.overrides.policy_gradient import policy_gradient_overrides

from ..dataset.test_token_advantages import job_of, random_rows, reference_rewards
from ..loss_reference import Row, estimated_advantages, importance_weights, policy_loss, value_loss
from ..recipe_kinds import POLICY_GRADIENTS, flat_value
from ..selection_rows import select
from ..training_running import a_plan
from .test_stored_rollouts import Batch, Queue

pytestmark = pytest.mark.filterwarnings("ignore")
EACH_LOSS = [
    pytest.param(kind, marks=() if kind in {"dr_grpo", "gspo", "ppo"} else pytest.mark.slow)
    for kind in POLICY_GRADIENTS
]
"""Every kind; those whose losses differ in more than their advantages are not slow."""
LAMBDA = 0.9


class Verl(NamedTuple):
    """verl's functions, imported late: it warns about itself, and takes seconds."""

    plugin: Any
    losses: Any
    configs: Any
    tensors: Any
    compose: Any


@pytest.fixture(scope="module")
def verl() -> Verl:
    importlib.import_module("spanloop.training.verl_plugin.policy_loss")
    return Verl(
        importlib.import_module("spanloop.training.verl_plugin.stored_rollouts"),
        importlib.import_module("verl.workers.utils.losses"),
        importlib.import_module("verl.utils.config"),
        importlib.import_module("verl.utils.tensordict_utils"),
        importlib.import_module("spanloop.training.verl_plugin.verl_config").compose,
    )


@pytest.fixture
def queue(verl: Verl, monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = Queue(verl.plugin.list_of_dict_to_tensordict)
    monkeypatch.setattr(verl.plugin, "tq", queue)
    monkeypatch.setattr(importlib.import_module("verl.trainer.ppo.v1.trainer_base"), "tq", queue)
    return queue


@cache
def config_of(verl: Verl, kind: str, *, epochs: int, **settings: Any) -> Any:
    """verl's configuration of a job with the recipe's defaults, but for ``settings``."""
    spec = JobSpec.of(kind=kind, base="tiny", epochs=epochs, **settings)
    names = {"kind", "epochs", "loss_aggregation", "kl_coefficient", *settings}
    changes = {name: flat_value(spec, name) for name in names}
    plan = a_plan(Path("/nowhere"), device=Device.CPU, gae_lambda=LAMBDA, **changes)
    return verl.compose("ppo_trainer", policy_gradient_overrides(plan))


class Exported(NamedTuple):
    """A dataset in verl's queue."""

    keys: list[str]
    rewards: list[Any]
    """Of the tokens of each row, by the reference; ppo alone."""


def export(seed: int, kind: str, verl: Verl, queue: Queue, folder: Path) -> Exported | None:
    """Select generated rows and put them into the queue as a job does; None when no row is left."""
    rows, job = random_rows(random.Random(seed)), job_of(kind, seed)
    selected = select(rows, job).rows
    if selected.height == 0 or selected["loss_mask"].list.sum().sum() < 2:
        return None
    queue.fields.clear()
    selected.write_parquet(folder / "dataset.parquet")
    groups = selected["group_id"].unique(maintain_order=True).to_list()
    verl.plugin.StoredRollouts(folder / "dataset.parquet").generate_sequences({"uid": groups, "group_id": groups})
    order = selected.select("group_id", "session", "row_number").rows()
    keys = [f"{group}_{session}_{number}" for group, session, number in order]
    rewards = reference_rewards(rows, job) if kind == "ppo" else {}
    return Exported(keys, [rewards.get(identity) for identity in selected["trajectory_id"]])


def invent_models(queue: Queue, keys: list[str], rng: np.random.Generator, *, single_pass: bool) -> None:
    """Log-probabilities and values as engines would put them into the queue, and the policy's own."""
    for key in keys:
        fields = queue.fields[key]
        sampler = fields["rollout_log_probs"]

        def near(others: torch.Tensor, scale: float) -> torch.Tensor:
            return others + torch.tensor(rng.normal(0, scale, len(others)), dtype=torch.float32)

        start = near(sampler, 0.6)
        fields["start"], fields["ref_log_prob"] = start, near(sampler, 0.5)
        fields["old_log_probs"] = sampler if single_pass else start
        fields["policy"] = start if single_pass else near(start, 0.3)
        fields["values"], fields["predicted"] = near(torch.zeros(len(sampler)), 1.0), near(torch.zeros(len(sampler)), 1)


def reference_rows(queue: Queue, keys: list[str], advantages: list[Any]) -> list[Row]:
    names = ("rollout_log_probs", "start", "policy", "ref_log_prob")
    return [
        Row(
            numbers(queue.fields[key]["loss_mask"]),
            numbers(advantage),
            *(numbers(queue.fields[key][name]) for name in names),
        )
        for key, advantage in zip(keys, advantages, strict=True)
    ]


def numbers(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64)


def compute_advantages(verl: Verl, config: Any, kind: str, keys: list[str]) -> None:
    """The trainer's stage, without a trainer that Ray started."""
    trainer: Any = object.__new__(verl.plugin.StoredTrainer)
    trainer.recipe = find_recipe(kind)()
    trainer.config = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    trainer._compute_advantage(Batch(keys), {})


def loss_and_gradient(
    verl: Verl, queue: Queue, keys: list[str], loss: Callable[..., Any], *, output: str, source: str
) -> tuple[float, list[torch.Tensor]]:
    """verl's loss of a batch in two micro-batches, and its derivative by the model's output for each token."""
    fields = ["prompts", "responses", "response_mask", "loss_mask", "old_log_probs", "advantages", "returns", "values",
              "ref_log_prob", "rollout_is_weights"]  # fmt: skip
    batch = queue.kv_batch_get(keys=keys, select_fields=["loss_mask"])
    sizes = {"dp_size": 1, "batch_num_tokens": int(batch["loss_mask"].values().sum()), "global_batch_size": len(keys)}
    total = 0.0
    gradients: dict[str, Any] = {}
    for part in (keys[::2], keys[1::2]):
        if not part:
            continue
        data = queue.kv_batch_get(keys=part, select_fields=fields)
        verl.tensors.assign_non_tensor(data, **sizes)
        outputs = [queue.fields[key][source].clone().requires_grad_() for key in part]
        # the engine's outputs lie one position before the token that they are for
        shifted = [
            torch.cat([torch.zeros(len(queue.fields[key]["prompts"]) - 1), values, torch.zeros(1)])
            for key, values in zip(part, outputs, strict=True)
        ]
        nested = torch.nested.nested_tensor_from_jagged(
            torch.cat(shifted), torch.tensor([0, *np.cumsum([len(each) for each in shifted])])
        )
        value, _ = loss(model_output={output: nested}, data=data)
        value.backward()
        total += float(value)
        gradients |= {key: each.grad for key, each in zip(part, outputs, strict=True)}
    return total, [gradients[key] for key in keys]


def policy_gradients(verl: Verl, queue: Queue, keys: list[str], config: Any) -> list[torch.Tensor]:
    """The derivatives of verl's policy loss by the policy's log-probabilities, row by row."""
    actor = verl.configs.omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    loss = partial(verl.losses.ppo_loss, actor)
    return loss_and_gradient(verl, queue, keys, loss, output="log_probs", source="policy")[1]


def assert_losses(
    kind: str,
    seed: int,
    config: Any,
    *,
    verl: Verl,
    queue: Queue,
    folder: Path,
    clip: tuple[float, float] | None = None,
    value_clip: float = 0.5,
    value_coefficient: float = 1.0,
) -> bool:
    """Compare one dataset; False when it has no rows."""
    exported = export(seed, kind, verl, queue, folder)
    if exported is None:
        return False
    keys = exported.keys
    single_pass = bool(config.algorithm.rollout_correction.bypass_mode)
    invent_models(queue, keys, np.random.default_rng(seed), single_pass=single_pass)
    compute_advantages(verl, config, kind, keys)
    stored = [queue.fields[key] for key in keys]
    advantages: list[Any] = [fields["advantages"] for fields in stored]
    if kind == "ppo":
        masks = [numbers(fields["loss_mask"]) for fields in stored]
        values, predicted = ([numbers(fields[name]) for fields in stored] for name in ("values", "predicted"))
        advantages, returns = estimated_advantages(exported.rewards, values, masks, LAMBDA)
        for fields, advantage, mask in zip(stored, advantages, masks, strict=True):
            np.testing.assert_allclose(numbers(fields["advantages"]) * mask, advantage * mask, rtol=0, atol=1e-5)
        weighted = importlib.import_module("spanloop.training.verl_plugin.critic").weighted_value_loss
        loss, _ = loss_and_gradient(
            verl,
            queue,
            keys,
            weighted(config.critic, value_coefficient),
            output="values",
            source="predicted",
        )
        expected = value_coefficient * value_loss(predicted, values, returns, masks, value_clip)
        assert loss == pytest.approx(expected, abs=1e-5)
    rows = reference_rows(queue, keys, advantages)
    if not single_pass:
        for fields, row in zip(stored, rows, strict=True):
            weights = importance_weights(kind, row) * row.mask
            np.testing.assert_allclose(numbers(fields["rollout_is_weights"]) * row.mask, weights, rtol=0, atol=1e-5)
    actor = verl.configs.omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    mode, kl = str(config.actor_rollout_ref.actor.loss_agg_mode), 0.04 if kind == "grpo" else 0.0
    longest = int(config.actor_rollout_ref.actor.loss_scale_factor)
    loss, gradients = loss_and_gradient(
        verl, queue, keys, partial(verl.losses.ppo_loss, actor), output="log_probs", source="policy"
    )
    assert loss == pytest.approx(policy_loss(kind, mode, rows, longest, kl, clip), abs=1e-5)
    if single_pass and kind != "grpo":
        # a ratio of 1: the derivative of a row's loss by its log-probabilities is its loss, token by token
        total = sum(float(gradient.sum()) for gradient in gradients)
        assert total == pytest.approx(policy_loss(kind, mode, rows, longest, kl), abs=1e-5)
    return True


@pytest.mark.parametrize("epochs", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("kind", EACH_LOSS)
def test_losses_equal_the_reference(kind: str, epochs: int, verl: Verl, queue: Queue, tmp_path: Path) -> None:
    config = config_of(verl, kind, epochs=epochs)
    assert sum(assert_losses(kind, seed, config, verl=verl, queue=queue, folder=tmp_path) for seed in range(4)) >= 3


@pytest.mark.parametrize("kind", ["dr_grpo", "gspo", "ppo"])
def test_clip_ranges_and_the_value_coefficient_are_in_the_losses(
    kind: str, verl: Verl, queue: Queue, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"clip_ratio_low": 0.05, "clip_ratio_high": 0.4}
    reference: dict[str, Any] = {"clip": (0.05, 0.4)}
    if kind == "ppo":
        settings |= {"cliprange_value": 0.1, "value_coefficient": 0.5}
        reference |= {"value_clip": 0.1, "value_coefficient": 0.5}
    config = config_of(verl, kind, epochs=2, **settings)
    tools: dict[str, Any] = {"verl": verl, "queue": queue, "folder": tmp_path}
    assert sum(assert_losses(kind, seed, config, **tools, **reference) for seed in range(4)) >= 3
    assert_losses(kind, 0, config_of(verl, kind, epochs=2), **tools)
    with pytest.raises(AssertionError):
        assert_losses(kind, 0, config_of(verl, kind, epochs=2), **tools, **reference)


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("kind", POLICY_GRADIENTS)
def test_losses_equal_the_reference_on_200_datasets(
    kind: str, epochs: int, verl: Verl, queue: Queue, tmp_path: Path
) -> None:
    config = config_of(verl, kind, epochs=epochs)
    assert sum(assert_losses(kind, seed, config, verl=verl, queue=queue, folder=tmp_path) for seed in range(200)) > 150

# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Replace verl's rollout engine by stored trajectories.

verl's V1 trainer asks an agent loop manager for the trajectories of each prompt and reads them from TransferQueue.
Here a prompt is a group of the dataset and its trajectories are the group's rows, put into TransferQueue as they
are: group → prompt uid, episode → session, merged row → index. The advantages are the dataset's, token by token; those
of ppo are verl's own, from the critic's values and the rewards. What verl then does with them (log-probabilities,
importance correction, losses, updates) is stock, but for the recipe's importance weights and loss. A batch of any
size is one optimizer step. Each rank gets whole groups where there are enough; ranks with fewer rows than others are
filled up with verl's padding rows, which have no trained token.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import ray
import torch
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from torch.utils.data import Dataset
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.protocol import DataProto
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry
from verl.workers.utils.padding import response_to_nested

from spanloop.foundation.errors import JobError
from spanloop.training.models.checkpoint_fence import NO_FENCE, check_claim
from spanloop.training.recipes.policy_gradient import PolicyGradient
from spanloop.training.recipes.ppo import VALUE_COEFFICIENT
from spanloop.training.spec.defaults import MAX_CHECKPOINTS
from spanloop.training.verl_plugin.drift import require_within

from .critic import CriticWorker, weighted_value_loss
from .engine.batch_metrics import ENTROPY, mean_entropy
from .engine.prefix_tree import packed_tokens
from .overrides.policy_gradient import STORED_ADVANTAGES
from .pending_checkpoint import PendingCheckpoint
from .policy_loss import GAP, mean_gap
from .rank_shares import LARGEST_SHARE, share_groups, with_padding
from .ray_cluster.reserved_pools import ReservedPools
from .sample_records import RECORDS, SAMPLE, PolicyRecords, require_trained_tokens, sample_field

TRAINER_MODE = "spanloop_stored"
"""``trainer.v1.trainer_mode`` of :class:`StoredTrainer`."""
ROLLOUT_NAME = "none"
"""``rollout.name``: verl looks up a class, although there is no rollout engine."""
_CORRECTION = "rollout_corr/"
"""Prefix of verl's metrics that compare the sampler with the engine."""

RolloutReplicaRegistry.register(ROLLOUT_NAME, lambda: RolloutReplica)


@register_trainer(TRAINER_MODE)
class StoredTrainer(PPOTrainer):
    """verl's V1 trainer without a rollout engine."""

    _enable_hybrid_replicas = False
    """Actor only: verl starts no inference replicas."""

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if Role.Critic in self.role_worker_mapping:
            workers: dict[Role, Any] = self.role_worker_mapping
            workers[Role.Critic] = ray.remote(CriticWorker)
        if self.groups:
            stock = self.resource_pool_manager
            mapping: Any = self.mapping
            pools = ReservedPools(resource_pool_spec=stock.resource_pool_spec, mapping=mapping)
            pools.groups, pools.use_gpu = self.groups, self.config.trainer.device != "cpu"
            self.resource_pool_manager = pools

    groups: Sequence[Any] = ()
    """The placement group of each node that the job has reserved; none on the backbone ``debug``."""

    recipe: PolicyGradient
    """With the values of its settings."""

    value_coefficient: float = VALUE_COEFFICIENT
    """Weight of the critic's loss."""

    def _setup(self) -> None:
        super()._setup()
        if self.use_critic and self.value_coefficient != 1:
            self.critic_wg.set_loss_fn(weighted_value_loss(self.config.critic, self.value_coefficient))

    queue_ready: Callable[[], object]
    """Returns when TransferQueue has started; it starts while verl's worker does."""

    def _load_checkpoint(self) -> None:
        self.queue_ready()
        super()._load_checkpoint()

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        return dp_size

    def _balance_batch(
        self,
        batch: Any,
        metrics: dict[str, Any],
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,  # noqa: FBT001, FBT002 - verl's signature
    ) -> Any:
        """Give each rank whole groups; verl balances single rows, which would lose common prefixes."""
        dispatch = self.actor_rollout_wg._dispatch_info  # noqa: SLF001 - as verl's method of this name
        if "actor" not in dispatch:
            dispatch["actor"] = self.actor_rollout_wg._query_dispatch_info("actor")  # noqa: SLF001
        ranks = max(dispatch["actor"]) + 1
        shares = share_groups(batch.tags, ranks) if ranks > 1 else None
        if shares is None:
            return super()._balance_batch(batch, metrics, logging_prefix, keep_minibatch)
        count = len(batch)
        padded = upsample_batch_to_divisible_size(
            batch, ranks * max(map(len, shares.rows)), self.tokenizer.eos_token_id
        )
        padded.reorder(with_padding(shares.rows, range(count, len(padded))))
        metrics[LARGEST_SHARE] = shares.largest
        return padded

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        with open_dict(self.config):
            self.config.critic.ppo_mini_batch_size = len(batch)
        return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        # Groups and episodes differ in their number of rows: the mini-batch is the whole batch.
        with open_dict(self.config):
            self.config.actor_rollout_ref.actor.ppo_mini_batch_size = len(batch)
        self._record(batch)
        updated = super()._update_actor(batch, metrics)
        # The actor's comparison with the sampler has verl's name. After several passes the actor is no longer the
        # policy of the step's start, so the comparison from before them is kept.
        measured = {name: metrics.pop(name) for name in list(metrics) if name.startswith(f"actor/{_CORRECTION}")}
        if self.config.algorithm.rollout_correction.bypass_mode:
            metrics.update({name.removeprefix("actor/"): value for name, value in measured.items()})
        require_within(self.recipe.kl_budget, metrics, self.global_steps)
        return updated

    samples_path: Path | None = None
    """File of :mod:`.sample_records`; None records nothing."""

    def _record(self, batch: Any) -> None:
        """Record the rows of the batch, or let the engine do so where only its update computes the log-probabilities.

        Raises:
            MaskedBatchError: No token of the batch is trained.
        """
        actor = self.config.actor_rollout_ref.actor
        fields = ["response_mask", "advantages", "rollout_log_probs", "old_log_probs", "rollout_is_weights", SAMPLE]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields[:1])
        require_trained_tokens(data["response_mask"], self.global_steps)
        if self.samples_path is None:
            return
        records = PolicyRecords(
            self.samples_path,
            self.global_steps,
            self.recipe,
            actor.loss_agg_mode,
            actor.loss_scale_factor,
        )
        if self.config.algorithm.rollout_correction.bypass_mode:
            batch.extra_info[RECORDS] = records
        else:
            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
            records.write(data, data["old_log_probs"], data["rollout_is_weights"])

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_old_log_prob(batch, metrics)
        if not self.config.algorithm.rollout_correction.bypass_mode:
            fields = ["old_log_probs", "rollout_log_probs", "response_mask"]
            entropy = tq.kv_batch_get(
                keys=batch.keys, partition_id=batch.partition_id, select_fields=["entropy", "response_mask"]
            )
            metrics[ENTROPY] = mean_entropy(*(entropy[name].to_padded_tensor(0.0) for name in ("entropy", fields[2])))
            data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
            metrics[GAP] = mean_gap(*(data[field].to_padded_tensor(0.0) for field in fields))
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Add the recipe's importance weights to a batch; the advantages that the dataset put into the queue stay.

        As verl's method of this name, without its estimator unless there is a critic.
        """
        estimated = batch
        if self.config.algorithm.adv_estimator != STORED_ADVANTAGES:
            estimated = super()._compute_advantage(batch, metrics)
        correction = self.config.algorithm.rollout_correction
        if correction.bypass_mode:
            return estimated
        fields = ["response_mask", "rollout_log_probs", "old_log_probs"]
        nested = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        response_mask = nested["response_mask"]
        padded = DataProto(batch=nested.to_padded_tensor())
        data, correction_metrics = compute_rollout_correction_and_add_to_batch(padded, correction)
        metrics.update(correction_metrics)
        log_ratio = data.batch["old_log_probs"] - data.batch["rollout_log_probs"]
        mask = data.batch["response_mask"]
        data.batch["rollout_is_weights"] = self.recipe.importance_weights(log_ratio, mask) * mask
        names = ("response_mask", "rollout_is_weights")
        output = {name: response_to_nested(data.batch[name], response_mask) for name in names}
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(output, batch_size=len(batch))
        )

    lease_token: int = NO_FENCE
    max_checkpoints: int = MAX_CHECKPOINTS
    """Complete checkpoints that are kept."""
    _pending: PendingCheckpoint | None = None
    _is_logged = True
    """Whether the metrics of the pending checkpoint's step are on disk."""

    def _save_checkpoint(self) -> None:
        directory = Path(self.config.trainer.default_local_dir)
        check_claim(directory, self.lease_token)
        self.finish_saving()
        super()._save_checkpoint()
        trainer = self.config.trainer
        self._pending = PendingCheckpoint(
            directory,
            parts=("actor", str(Role.Critic)) if self.use_critic else ("actor",),
            ranks=trainer.nnodes * trainer.n_gpus_per_node,
            lease_token=self.lease_token,
            keep=self.max_checkpoints,
        )
        self._pending.begin(self.global_steps)
        self._is_logged = False

    def on_step_begin(self) -> None:
        """Mark the last checkpoint as complete where it is written.

        verl logs a step's metrics after saving, and they are on disk now, so a resumed job never skips them.
        """
        self._is_logged = True
        if self._pending is not None:
            self._pending.mark_if_written()

    def finish_saving(self) -> None:
        """Wait until the last checkpoint is written, and mark it as complete.

        Raises:
            Exception: What writing it raised.
        """
        if self._pending is None:
            return
        for group in (self.actor_rollout_wg, *([self.critic_wg] if self.use_critic else [])):
            group.save_checkpoint(None)
        self._pending.mark_if_written()
        self._pending = None

    def keep_saved(self) -> None:
        """Mark the last checkpoint of a training that failed; its ranks may not answer any more."""
        if self._pending is not None and self._is_logged:
            self._pending.mark_when_written()

    def get_llm_client(self) -> Any:
        """No inference engine exists."""

    def on_sample_end(self) -> None:
        """No replicas exist."""

    def on_step_end(self) -> None:
        """No replicas exist."""


class GroupDataset(Dataset[dict[str, Any]]):
    """One item for each prompt group of the dataset file; the rows pass through TransferQueue."""

    def __init__(self, data_files: Any, *_: Any, **__: Any) -> None:
        path = data_files if isinstance(data_files, str) else data_files[0]
        self.group_ids = pl.read_parquet(path, columns=["group_id"])["group_id"].unique(maintain_order=True).to_list()

    def __len__(self) -> int:
        return len(self.group_ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"raw_prompt": [], "index": index, "group_id": self.group_ids[index], "data_source": "spanloop"}


class StoredRollouts:
    """An agent loop manager of verl that reads a dataset file.

    Raises:
        JobError: An earlier version exported the file, without advantages.

    The weights that sampled a row count as verl's weight version 0, the base; rollout correction compares the
    sampler's own log-probabilities, so nothing depends on that label.
    """

    def __init__(self, dataset_path: Path) -> None:
        frame = pl.read_parquet(dataset_path).with_row_index(SAMPLE)
        if "advantages" not in frame.columns:
            raise JobError(
                f"{dataset_path} was exported by an earlier version of spanloop and has no advantages.",
                next_step="Submit a new job with the same spec; it exports its dataset again.",
            )
        self.rows = {str(key[0]): group for key, group in frame.group_by("group_id", maintain_order=True)}

    def generate_sequences(self, batch: Any) -> None:
        """Put the rows of every group in ``batch`` into TransferQueue."""
        for uid, group_id in zip(batch["uid"], batch["group_id"], strict=True):
            self._put_group(_plain(uid), self.rows[_plain(group_id)])

    def _put_group(self, uid: str, rows: pl.DataFrame) -> None:
        keys, fields = [], []
        for row in rows.iter_rows(named=True):
            keys.append(f"{uid}_{row['session']}_{row['row_number']}")
            fields.append(_fields(uid, row))
        group = {"group": uid, "group_tokens": packed_tokens([row["input_ids"] for row in fields])}
        tags = [_tag(row) | group for row in rows.iter_rows(named=True)]
        tq.kv_batch_put(keys=keys, fields=list_of_dict_to_tensordict(fields), tags=tags, partition_id="train")
        tq.kv_put(key=uid, partition_id="train", tag={"status": "finished"})


def _plain(value: Any) -> str:
    return str(getattr(value, "data", value))


def _fields(uid: str, row: dict[str, Any]) -> dict[str, Any]:
    output = AgentLoopOutput(
        prompt_ids=row["prompt_token_ids"],
        response_ids=row["response_token_ids"],
        response_mask=row["loss_mask"],
        response_logprobs=row["logprobs"],
        reward_score=row["reward"],
        num_turns=2,
        metrics=AgentLoopMetrics(),
        extra_fields={"min_global_steps": 0, "max_global_steps": 0, "reward_extra_info": {}},
    )
    fields = output.as_dict()
    input_ids = torch.cat([fields["prompts"], fields["responses"]])
    return (
        fields
        | _advantages(row)
        | {
            "uid": uid,
            "session_id": row["session"],
            "data_source": "spanloop",
            "input_ids": input_ids,
            "position_ids": torch.arange(len(input_ids)),
            "loss_mask": fields["response_mask"],
            "rm_scores": _token_rewards(row),
            "multi_modal_inputs": {},
            SAMPLE: sample_field(row[SAMPLE]),
        }
    )


def _advantages(row: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the dataset's advantages; nothing for ppo, whose rows have none."""
    if row["advantages"] is None:
        return {}
    advantages = torch.tensor(row["advantages"], dtype=torch.float32)
    return {"advantages": advantages, "returns": advantages}


def _token_rewards(row: dict[str, Any]) -> torch.Tensor:
    """Return the dataset's rewards (ppo), else the episode's at the row's last trained token."""
    if row.get("rewards") is not None:
        return torch.tensor(row["rewards"], dtype=torch.float32)
    rewards = torch.zeros(len(row["loss_mask"]), dtype=torch.float32)
    rewards[max(index for index, is_trained in enumerate(row["loss_mask"]) if is_trained)] = row["reward"]
    return rewards


def _tag(row: dict[str, Any]) -> dict[str, Any]:
    prompt_tokens, response_tokens = len(row["prompt_token_ids"]), len(row["response_token_ids"])
    return {
        "status": "success",
        "prompt_len": prompt_tokens,
        "response_len": response_tokens,
        "seq_len": prompt_tokens + response_tokens,
        "global_steps": 0,
        "min_global_steps": 0,
        "max_global_steps": 0,
    }

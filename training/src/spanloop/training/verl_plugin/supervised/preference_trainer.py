# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""verl's SFT trainer on preference pairs; import it in the process of the rank.

A step computes the log-probabilities of the batch's rows, the loss and its derivatives from them
(:mod:`.preference_loss`), and then the gradient. verl's engine does both passes, in micro-batches; on a CPU it computes
the prompt that the sides of a pair share once. The reference is what the base gave the rows, before the first step:
:mod:`.reference_logprobs`.
"""

from typing import Any

import torch
from tensordict.tensorclass import NonTensorData
from verl.utils import tensordict_utils as tu

from spanloop.training.recipes.pairs import Preference

from ..sample_records import append_line, pair_columns
from ..train_plan import TrainPlan
from .pair_dataset import collate_pairs
from .preference_loss import PairedLogprobs, preference_loss
from .reference_logprobs import load_or_compute
from .sft_trainer import MarkingSftTrainer


def preference_of(plan: TrainPlan) -> Preference:
    """Return the recipe of the plan of a job that learns from pairs."""
    if not isinstance(plan.recipe, Preference):
        raise TypeError(f"{plan.job_id}: got the recipe {plan.recipe.kind}, expected one that learns from pairs")
    return plan.recipe


class PreferenceTrainer(MarkingSftTrainer):
    """Trains on the pairs of a dataset file."""

    def _build_engine(self) -> None:
        super()._build_engine()
        self.training_client.set_loss_fn(weighted_logprobs)
        self.training_client: Any = PreferenceWorker(self.training_client, self._plan)

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        self.train_dataloader.collate_fn = collate_pairs

    def _build_ckpt_handler(self) -> None:
        # the engine has the base's weights here; a checkpoint is loaded afterwards
        if preference_of(self._plan).dpo_reference_free:
            self.training_client.reference = torch.zeros(self.train_dataset.row_count, dtype=torch.float64)
        else:
            reference = load_or_compute(self._plan.dataset_path, self._base_logprobs)
            self.training_client.reference = torch.tensor(reference.logprobs, dtype=torch.float64)
        super()._build_ckpt_handler()

    def fit(self) -> None:
        """Train the remaining steps."""
        self.training_client.step = self.resume_global_step
        super().fit()

    def _base_logprobs(self) -> list[float]:
        pairs, size = self.train_dataset, self.train_batch_size_per_dp
        logprobs: list[float] = []
        for start in range(0, len(pairs), size):
            batch = collate_pairs([pairs[index] for index in range(start, min(start + size, len(pairs)))])
            logprobs += self.training_client.logprobs(self._as_verl_batch(batch)).tolist()
        return logprobs

    def _as_verl_batch(self, batch: dict[str, Any]) -> Any:
        data = self.config.data
        settings = {
            "use_remove_padding": self.config.model.use_remove_padding,
            "use_dynamic_bsz": data.use_dynamic_bsz,
            "max_token_len_per_gpu": data.max_token_len_per_gpu,
            "micro_batch_size_per_gpu": data.micro_batch_size_per_gpu,
            "temperature": 1.0,
            "pad_mode": data.pad_mode,
            "pad_token_id": self.model_config.tokenizer.pad_token_id,
            "global_token_num": NonTensorData(batch["input_ids"].offsets().diff().tolist()),
        }
        return tu.get_tensordict(tensor_dict=batch, non_tensor_dict=settings)


class PreferenceWorker:
    """verl's training worker, whose training step takes batches of pairs.

    Args:
        worker: With the loss :func:`weighted_logprobs`.
        plan: Of a job that learns from pairs.
    """

    reference: torch.Tensor
    """The reference of every row of the dataset file; set before the first step."""
    step: int = 0
    """The last completed step."""

    def __init__(self, worker: Any, plan: TrainPlan) -> None:
        self._worker = worker
        self._plan = plan
        self._recipe = preference_of(plan)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    def logprobs(self, data: Any) -> torch.Tensor:
        """Return the sum of the log-probabilities of each row's trained tokens, float64."""
        tu.assign_non_tensor(data, compute_loss=False)
        output = self._worker.infer_batch(data)
        return row_sums(output["log_probs"], data["loss_mask"].cpu())

    def train_batch(self, data: Any) -> Any:
        """Take one optimiser step on a batch of pairs; the loss and ``dpo/`` metrics are those before the step."""
        rows = PairedLogprobs(
            policy=self.logprobs(data),
            reference=self.reference[data["row"]],
            tokens=torch.tensor([int(mask.sum()) for mask in data["loss_mask"].unbind()]),
            pair=data["pair"],
            is_chosen=data["is_chosen"],
        )
        computed = preference_loss(
            rows,
            beta=self._recipe.dpo_beta,
            nll_weight=self._recipe.dpo_nll_weight,
            loss=self._recipe.dpo_loss,
            label_smoothing=self._recipe.dpo_label_smoothing,
        )
        data["row_weights"] = computed.row_weights.float()
        output = self._worker.train_batch(data)
        self.step += 1
        if self._plan.samples_path is not None:
            append_line(self._plan.samples_path, self.step, pair_columns(data["row"], rows, computed))
        metrics = dict(computed.metrics)
        if self._recipe.dpo_reference_free:
            # a divergence from no reference means nothing
            del metrics["dpo/kl_k2"]
        tu.get(output, "metrics").update(metrics, loss=float(computed.loss))
        return output


def weighted_logprobs(
    model_output: dict[str, Any], data: Any, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return ``sum(row_weights * sums of log-probabilities)``, whose gradient is that of the preference loss.

    A loss function of verl.
    """
    del dp_group
    sums = row_sums(model_output["log_probs"], data["loss_mask"])
    return (data["row_weights"].to(sums.device) * sums.float()).sum(), {}


def row_sums(logprobs: Any, masks: Any) -> torch.Tensor:
    """Return the sum over the trained tokens of each row, float64.

    Args:
        logprobs: Nested; each number stands at the token before the predicted one.
        masks: Nested, 1 at each trained token; 0 at a row's first token.
    """
    rows = zip(logprobs.unbind(), masks.unbind(), strict=True)
    return torch.stack([(values.double() * mask.roll(-1)).sum() for values, mask in rows])

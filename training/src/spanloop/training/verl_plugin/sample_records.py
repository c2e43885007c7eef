# pyright: basic
"""Record what a step does with each row of the dataset: one JSON line for each batch, for ``training_samples``.

The file holds row positions and numbers only. ``run_job`` adds the identity of the rows and sends them to the store
(:mod:`spanloop.training.run.monitor.samples`), so that the process that trains needs no store. A line is written before
its step can be resumed from.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss
from verl.workers.utils.padding import response_from_nested

from spanloop.training.recipes.policy_gradient import PolicyBatch, PolicyGradient
from spanloop.training.verl_plugin.early_stopping import MaskedBatchError

from .supervised.preference_loss import PairedLogprobs, PreferenceLoss

SAMPLE = "sample"
"""Field of a verl batch: the position of each row in the dataset file, shape (rows, 1)."""
RECORDS = "spanloop_records"
"""Setting of a verl batch: the :class:`PolicyRecords` of its step."""


def sample_field(position: int) -> torch.Tensor:
    """Return the value of :data:`SAMPLE` for one row."""
    return torch.tensor([position], dtype=torch.int64)


def append_line(path: Path, step: int, columns: dict[str, list[Any]]) -> None:
    """Append one line to the file of this rank.

    Each rank has a file, because several nodes that append to one overwrite each other on a network file system.
    """
    line = json.dumps({"step": step, **columns}).encode() + b"\n"
    rank = int(os.environ.get("RANK", "0"))
    path_of_rank = path.with_name(f"{path.stem}-{rank}{path.suffix}") if rank else path
    descriptor = os.open(path_of_rank, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def require_trained_tokens(mask: torch.Tensor, step: int) -> None:
    """Check that the loss mask of a batch has a token; verl would divide by their number.

    Raises:
        MaskedBatchError: It has none.
    """
    if not float((mask.values() if mask.is_nested else mask).sum()):
        raise MaskedBatchError(step)


def pair_columns(positions: torch.Tensor, rows: PairedLogprobs, computed: PreferenceLoss) -> dict[str, list[Any]]:
    """Return what a step of dpo did with each row of its pairs.

    The advantage is the weight of the row's log-probability in the step: positive on the better side of a pair.

    Args:
        positions: Of the rows in the dataset file.
        rows: Their log-probabilities.
        computed: The loss of the batch.
    """
    tokens = rows.tokens.clamp(min=1)
    return {
        SAMPLE: positions.tolist(),
        "tokens": rows.tokens.tolist(),
        "advantage": (-computed.row_weights).tolist(),
        "old_logprob": (rows.reference / tokens).tolist(),
        "new_logprob": (rows.policy / tokens).tolist(),
        "loss": computed.row_losses.tolist(),
    }


@dataclass(frozen=True)
class PolicyRecords:
    """The records of one step of a policy gradient.

    Attributes:
        path: The file.
        step: The optimiser step.
        recipe: The recipe.
        aggregation: verl's ``loss_agg_mode``.
        scale: verl's ``loss_scale_factor``.
    """

    path: Path
    step: int
    recipe: PolicyGradient
    aggregation: str
    scale: int | None

    def write(
        self,
        data: Any,
        policy: torch.Tensor,
        weights: torch.Tensor | None = None,
        *,
        batch_tokens: int | None = None,
        batch_rows: int | None = None,
    ) -> None:
        """Write one line for the rows of ``data``.

        Args:
            data: A batch with nested ``advantages``, ``rollout_log_probs`` and ``response_mask``, and :data:`SAMPLE`.
            policy: Nested log-probabilities of the response tokens under the policy before the update.
            weights: Nested importance weights in the loss; by default those of a single pass.
            batch_tokens: Trained tokens of the whole batch; by default those of ``data``.
            batch_rows: Rows of the whole batch; by default those of ``data``.
        """
        names = ("response_mask", "advantages", "rollout_log_probs")
        mask, advantages, sampler = (data[name].to_padded_tensor(0.0) for name in names)
        engine = policy.to_padded_tensor(0.0).detach()
        mask = mask.float()
        ratios = (engine - sampler).exp() * mask
        if weights is None:
            used = self.recipe.importance_weights(engine - sampler, mask)
        else:
            used = weights.to_padded_tensor(0.0)
        losses = self.recipe.token_losses(PolicyBatch(engine, engine, used, advantages, mask))
        tokens = mask.sum(-1)
        columns: dict[str, list[Any]] = {
            "advantage": _means(advantages, mask),
            "old_logprob": _means(sampler, mask),
            "new_logprob": _means(engine, mask),
            "importance_mean": _means(ratios, mask),
            "importance_max": ratios.max(-1).values.tolist(),
            "loss": [
                float(
                    agg_loss(
                        losses[[row]],
                        mask[[row]],
                        self.aggregation,
                        batch_num_tokens=batch_tokens or int(tokens.sum()),
                        global_batch_size=batch_rows or len(tokens),
                        loss_scale_factor=self.scale,
                    )
                )
                for row in range(len(tokens))
            ],
        }
        columns |= {SAMPLE: _positions(data), "tokens": [int(count) for count in tokens]}
        append_line(self.path, self.step, columns)

    def write_update(self, data: Any, logprobs: torch.Tensor) -> None:
        """Write the rows of an engine's batch from the ``logprobs`` (nested, whole rows) of its only update."""
        self.write(
            data,
            response_from_nested(logprobs, data["response_mask"]),
            batch_tokens=data["batch_num_tokens"],
            batch_rows=data["global_batch_size"],
        )


@dataclass
class SftRecorder:
    """Records the loss of each row while verl's SFT trainer runs.

    Attributes:
        path: The file; None records nothing.
        step: The last completed step.
    """

    path: Path | None
    step: int = 0
    _rows: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Tokens and loss of each sample; the engine may compute a row again in a smaller pass."""
    _is_paused: bool = False

    def around_loss(self, loss_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``loss_fn``, which verl calls for each micro-batch, with recording."""

        def recorded(*, model_output: Any, data: Any, **settings: Any) -> Any:
            self._add(model_output["log_probs"].detach(), data)
            return loss_fn(model_output=model_output, data=data, **settings)

        return recorded

    def around_step(self, train_batch: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``train_batch``, which verl calls for each step, with a line afterwards."""

        def recorded(data: Any) -> Any:
            require_trained_tokens(data["loss_mask"], self.step + 1)
            output = train_batch(data=data)
            self.step += 1
            if self.path is not None:
                columns: dict[str, list[Any]] = {
                    SAMPLE: list(self._rows),
                    "tokens": [tokens for tokens, _ in self._rows.values()],
                    "loss": [loss for _, loss in self._rows.values()],
                }
                append_line(self.path, self.step, columns)
            self._rows = {}
            return output

        return recorded

    def paused(self, infer_batch: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``infer_batch``, which verl calls to validate, without recording its rows."""

        def unrecorded(data: Any) -> Any:
            self._is_paused = True
            try:
                return infer_batch(data)
            finally:
                self._is_paused = False

        return unrecorded

    def _add(self, logprobs: torch.Tensor, data: Any) -> None:
        if self._is_paused:
            return
        for sample, row, mask in zip(_positions(data), logprobs.unbind(), data["loss_mask"].unbind(), strict=True):
            # the engine's number at a token is that of the next one
            trained = mask[1:].bool()
            tokens = int(trained.sum())
            self._rows[sample] = (tokens, -float(row[:-1][trained].double().sum()) / max(1, tokens))


def _positions(data: Any) -> list[int]:
    positions = data[SAMPLE]
    return [int(value) for value in (positions.values() if positions.is_nested else positions.flatten())]


def _means(values: torch.Tensor, mask: torch.Tensor) -> list[float]:
    return ((values * mask).sum(-1) / mask.sum(-1).clamp(min=1)).tolist()

# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""verl's SFT trainer with our marker of complete checkpoints; import it in the process of the rank.

verl's trainer is written for ``torchrun`` and reads the rank when it is imported (:mod:`.ranks`).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.distributed import initialize_global_process_group

from spanloop.training.models.checkpoint_fence import check_claim

from ..pending_checkpoint import PendingCheckpoint
from ..sample_records import SftRecorder
from ..train_plan import TrainPlan
from ..verl_config import compose

_STOCK: Any = SFTTrainer


class MarkingSftTrainer(_STOCK):  # type: ignore[misc]
    """Marks each checkpoint as complete; verl's trainer has no hook for it.

    Args:
        plan: Of the job.
        overrides: Of verl's ``sft_trainer_engine`` configuration, in Hydra's syntax.
        recorder: Records the loss of each row.
    """

    def __init__(self, plan: TrainPlan, overrides: list[str], recorder: SftRecorder | None = None) -> None:
        self._plan = plan
        self._recorder = recorder
        config = compose("sft_trainer_engine", overrides, plan.run.verl)
        initialize_global_process_group()
        super().__init__(config=config)

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        # verl always shuffles, with torch's default seed
        self.train_sampler.shuffle = self.config.data.shuffle
        self.train_sampler.seed = self.config.trainer.seed
        if self.val_dataset is not None:
            self.val_dataloader: Any = self._validation_batches()

    def _validation_batches(self) -> Any:
        """Return a loader with one batch: all held-out rows of this rank.

        verl's own drops an incomplete batch, and takes the mean over batches, however many tokens each has. Rows that
        do not divide by the ranks are repeated at the end.
        """
        sampler: Any = DistributedSampler(
            self.val_dataset,
            shuffle=False,
            num_replicas=self.engine.get_data_parallel_size(),
            rank=self.engine.get_data_parallel_rank(),
        )
        return DataLoader(self.val_dataset, batch_size=len(sampler), sampler=sampler, collate_fn=self.collate_fn)

    def _build_engine(self) -> None:
        super()._build_engine()
        if self._recorder is not None:
            self.training_client.set_loss_fn(self._recorder.around_loss(self.loss_fn))
            self.training_client.train_batch = self._recorder.around_step(self.training_client.train_batch)
            self.training_client.infer_batch = self._recorder.paused(self.training_client.infer_batch)

        self.training_client.train_batch = self._marking(self.training_client.train_batch)

    def _marking(self, train_batch: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``train_batch``, which marks the last checkpoint first where it is written."""

        def train(*args: Any, **kwargs: Any) -> Any:
            self.ckpt_handler.mark_if_written()
            return train_batch(*args, **kwargs)

        return train

    def fit(self) -> None:
        """Train the remaining steps."""
        if self._recorder is not None:
            self._recorder.step = self.resume_global_step
        try:
            super().fit()
        except Exception:
            self.ckpt_handler.keep_saved()
            raise
        self.ckpt_handler.finish_saving()

    def _build_ckpt_handler(self) -> None:
        super()._build_ckpt_handler()
        self.ckpt_handler: Any = _MarkingHandler(self.ckpt_handler, self._plan)


class _MarkingHandler:
    """verl's checkpoint handler; each rank checks the lease before a save, and rank 0 marks what all have written."""

    def __init__(self, handler: Any, plan: TrainPlan) -> None:
        self._handler = handler
        self._directory = Path(handler.default_local_dir)
        self._lease_token = plan.lease_token
        self._pending = PendingCheckpoint(
            self._directory, ranks=plan.run.ranks, lease_token=plan.lease_token, keep=plan.run.max_ckpt_to_keep
        )

    def load_checkpoint(self) -> int:
        step = int(self._handler.load_checkpoint())
        loader = self._handler.train_dataloader
        if step % len(loader) == 0:
            # the state after an epoch's last batch is the end of that epoch, which verl would run as the next one
            loader.next_iter_state = None
        return step

    def save_checkpoint(self, step: int) -> None:
        check_claim(self._directory, self._lease_token)
        self.finish_saving()
        self._handler.save_checkpoint(step=step)
        if self._handler.rank == 0:
            self._pending.begin(step)
        self.mark_if_written()

    def mark_if_written(self) -> None:
        self._pending.mark_if_written()

    def finish_saving(self) -> None:
        """Wait until every rank has written the last checkpoint, and mark it as complete."""
        self._handler.engine.save_checkpoint(None)
        self.mark_if_written()

    def keep_saved(self) -> None:
        """Mark the last checkpoint of a training that failed; other ranks may not answer any more."""
        self._pending.mark_when_written()

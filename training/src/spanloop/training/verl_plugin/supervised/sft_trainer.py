# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""verl's SFT trainer with our marker of complete checkpoints; import it in the process of the rank.

verl's trainer is written for ``torchrun`` and reads the rank when it is imported (:mod:`.ranks`).
"""

from pathlib import Path
from typing import Any

from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.distributed import initialize_global_process_group

from spanloop.training.models.checkpoint_fence import NO_FENCE, check_claim
from spanloop.training.models.checkpoints import mark_complete

from ..sample_records import SftRecorder
from ..verl_config import compose

_STOCK: Any = SFTTrainer


class MarkingSftTrainer(_STOCK):  # type: ignore[misc]
    """Marks each checkpoint as complete; verl's trainer has no hook for it.

    Args:
        overrides: Of verl's ``sft_trainer_engine`` configuration, in Hydra's syntax.
        recorder: Records the loss of each row.
        lease_token: The fencing token of the attempt.
    """

    def __init__(
        self, overrides: list[str], recorder: SftRecorder | None = None, *, lease_token: int = NO_FENCE
    ) -> None:
        self._recorder = recorder
        self._lease_token = lease_token
        config = compose("sft_trainer_engine", overrides)
        initialize_global_process_group()
        super().__init__(config=config)

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        # verl always shuffles, with torch's default seed
        self.train_sampler.shuffle = self.config.data.shuffle
        self.train_sampler.seed = self.config.trainer.seed

    def _build_engine(self) -> None:
        super()._build_engine()
        if self._recorder is not None:
            self.training_client.set_loss_fn(self._recorder.around_loss(self.loss_fn))
            self.training_client.train_batch = self._recorder.around_step(self.training_client.train_batch)

    def fit(self) -> None:
        """Train the remaining steps."""
        if self._recorder is not None:
            self._recorder.step = self.resume_global_step
        super().fit()

    def _build_ckpt_handler(self) -> None:
        super()._build_ckpt_handler()
        self.ckpt_handler: Any = _MarkingHandler(self.ckpt_handler, self._lease_token)


class _MarkingHandler:
    """verl's checkpoint handler; each rank checks the lease before a save, and rank 0 writes our marker afterwards."""

    def __init__(self, handler: Any, lease_token: int) -> None:
        self._handler = handler
        self._lease_token = lease_token

    def load_checkpoint(self) -> int:
        step = int(self._handler.load_checkpoint())
        loader = self._handler.train_dataloader
        if step % len(loader) == 0:
            # the state after an epoch's last batch is the end of that epoch, which verl would run as the next one
            loader.next_iter_state = None
        return step

    def save_checkpoint(self, step: int) -> None:
        directory = Path(self._handler.default_local_dir)
        check_claim(directory, self._lease_token)
        # returns when every rank has saved
        self._handler.save_checkpoint(step=step)
        if self._handler.rank == 0:
            mark_complete(directory / f"global_step_{step}", token=self._lease_token)

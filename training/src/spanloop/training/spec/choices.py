"""Values of the settings of a training job that are chosen from a list."""

from enum import StrEnum


class Device(StrEnum):
    """The device that a job computes on."""

    AUTO = "auto"
    """The GPU if the host that trains has one, else the CPU."""
    CPU = "cpu"
    CUDA = "cuda"


class Backbone(StrEnum):
    """Where verl's trainer and workers run."""

    RAY = "ray"
    """In processes of a Ray cluster."""
    DEBUG = "debug"
    """All in one process, where breakpoints work."""


class OptimizerDtype(StrEnum):
    """The number format of AdamW's two moments."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """Half the memory, rounded stochastically."""


class Logger(StrEnum):
    """Loggers of verl besides its file; its names of ``trainer.logger``, which are those of the packages."""

    TENSORBOARD = "tensorboard"
    WANDB = "wandb"


class LearningRateSchedule(StrEnum):
    """How the learning rate changes after the warm-up; verl's names of its ``lr_scheduler_type``."""

    CONSTANT = "constant"
    COSINE = "cosine"
    """Half a cosine from the peak to zero at the job's last step."""


class Coreset(StrEnum):
    """How a job chooses a part of its groups or episodes."""

    NONE = "none"
    """All of them."""
    RANDOM = "random"
    """By the seed."""
    LOSS = "loss"
    """Those with the largest loss under the base."""
    DIVERSITY = "diversity"
    """Those whose responses differ most from each other."""
    HYBRID = "hybrid"
    """The most diverse among twice as many with the largest loss."""

    @property
    def needs_losses(self) -> bool:
        """Whether the base's loss decides."""
        return self in {Coreset.LOSS, Coreset.HYBRID}


class Curriculum(StrEnum):
    """The order in which a job trains on its groups."""

    NONE = "none"
    """Shuffled by the seed."""
    EASY_TO_HARD = "easy_to_hard"
    """From the highest pass rate to the lowest, in each pass over the data."""
    HARD_TO_EASY = "hard_to_easy"
    """From the lowest pass rate to the highest."""

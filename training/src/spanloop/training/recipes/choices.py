"""Values of the settings of recipes that are chosen from a list."""

from enum import StrEnum


class Credit(StrEnum):
    """How an episode's advantage is given to its steps."""

    BROADCAST = "broadcast"
    """Every step has the episode's advantage."""
    ATTRIBUTED = "attributed"
    """The policy pays at the steps of its own mistakes, and steps faulted by others are masked."""
    PROCESS = "process"
    """Each model call has its return to go, minus the mean of the compared episodes at the same call number."""
    PROCESS_GRPO = "process_grpo"
    """The normalised scores of single model calls are summed (process supervision, Shao et al. 2024)."""


class Outcomes(StrEnum):
    """The episodes that sft imitates, by their outcome."""

    SUCCESSFUL = "successful"
    """Whose outcome is ``success``: the rewards of the episode say so."""
    ALL = "all"
    """Failed episodes and those without a reward too."""


class LossAggregation(StrEnum):
    """How the losses of tokens become one number; verl's names of its ``loss_agg_mode``."""

    TOKEN_MEAN = "token-mean"  # noqa: S105 - verl's name
    """Each token counts the same, so long rows decide (DAPO, Yu et al. 2025)."""
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"  # noqa: S105
    """The sum of each row, then the mean over rows."""
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"  # noqa: S105
    """Each row counts the same, so a token of a long row counts less (GRPO, Shao et al. 2024)."""
    SEQ_MEAN_TOKEN_SUM_NORM = "seq-mean-token-sum-norm"  # noqa: S105
    """The sum of each row divided by one constant, then the mean over rows (Dr. GRPO, Liu et al. 2025)."""


class Tokens(StrEnum):
    """Which rows of episodes a job takes."""

    ANY = "any"
    """Captured tokens where an episode has some of the base's tokenizer, else its messages as rendered text."""
    CAPTURED = "captured"
    """Captured tokens only."""
    RENDERED = "rendered"
    """Rendered text only, for episodes with captured tokens too."""
    NONE = "none"
    """No episodes: dialog files alone."""


class DpoLoss(StrEnum):
    """The loss of a pair of attempts; TRL's names."""

    SIGMOID = "sigmoid"
    """The negative log-sigmoid of the margin (Rafailov et al. 2023)."""
    HINGE = "hinge"
    """How far the margin is below 1 (Zhao et al. 2023, "SLiC-HF")."""
    IPO = "ipo"
    """The squared distance of the log-ratios' difference to a fixed one (Azar et al. 2023)."""

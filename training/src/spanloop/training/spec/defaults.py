"""Defaults of a training job's settings, each with the paper or the measurement that it comes from."""

from collections.abc import Mapping
from typing import Any, Final

from spanloop.training.jobs.kinds import JobKind

from .choices import LossAggregation

DEFAULT_KIND: Final = JobKind.DR_GRPO
"""The recipe of the measured learning loop."""
LEARNING_RATES: Final[Mapping[JobKind, float]] = {
    JobKind.SFT: 1e-5,
    JobKind.DPO: 5e-7,
    **dict.fromkeys((kind for kind in JobKind if kind.is_policy_gradient), 1e-6),
}
"""sft: between InstructGPT (Ouyang et al. 2022, appendix C.1: 9.65e-6 and 5.03e-6), Tulu 3 (Lambert et al. 2024: 5e-6
for 8B) and TRL's default of 2e-5; dpo: Zephyr (Tunstall et al. 2023) and Tulu 3, both with AdamW (Rafailov et al. 2023
use RMSprop at 1e-6); policy gradients: DeepSeekMath (Shao et al. 2024, section 4.2) and verl's default."""
DPO_BETA: Final = 0.1
"""Rafailov et al. 2023, appendix B."""
PAIRS_PER_GROUP: Final = 4
"""A group of eight attempts, half of them good, gives four pairs in which each attempt occurs once."""
CRITIC_LEARNING_RATE: Final = 1e-5
"""verl's default; ten times the policy's, because the value head starts from zero."""
LOSS_AGGREGATIONS: Final[Mapping[JobKind, LossAggregation]] = {
    JobKind.DR_GRPO: LossAggregation.SEQ_MEAN_TOKEN_SUM_NORM,
    JobKind.GRPO: LossAggregation.SEQ_MEAN_TOKEN_MEAN,
    JobKind.RLOO: LossAggregation.SEQ_MEAN_TOKEN_SUM,
    JobKind.GSPO: LossAggregation.SEQ_MEAN_TOKEN_MEAN,
    JobKind.REINFORCE_PLUS_PLUS: LossAggregation.TOKEN_MEAN,
    JobKind.PPO: LossAggregation.TOKEN_MEAN,
}
"""dr_grpo: Liu et al. 2025, section 3.2. grpo: Shao et al. 2024, equation 3. rloo: a row is one action, whose
log-probability is the sum of its tokens' (Ahmadian et al. 2024). gspo: Zheng et al. 2025, equation 5.
reinforce_plus_plus and ppo: the mean over tokens, verl's default."""
KL_COEFFICIENTS: Final[Mapping[JobKind, float]] = {JobKind.GRPO: 0.04}
"""grpo: DeepSeekMath (Shao et al. 2024, section 4.2). Dr. GRPO (Liu et al. 2025) and the formulas of GSPO (Zheng et al.
2025) have no such term; RLOO, REINFORCE++ and PPO put the divergence into the reward, which is stored here: 0."""
CLIP_GRADIENT: Final = 1.0
"""verl's default."""
CLIP_RATIOS: Final[Mapping[JobKind, tuple[float, float]]] = {JobKind.GSPO: (3e-4, 4e-4)}
"""Lower and upper range; gspo's of a row's ratio (Zheng et al. 2025, section 5.1)."""
CLIP_RATIO: Final = (0.2, 0.2)
"""Of the other kinds: Schulman et al. 2017, table 1, and verl's default."""
CLIP_RANGE_VALUE: Final = 0.5
"""verl's default."""
VALUE_COEFFICIENT: Final = 1.0
"""verl has none; Schulman et al. 2017 use 1 for Atari (table 5)."""
MAX_CHECKPOINTS: Final = 2
"""The newest and the one before it, so that a kill while saving loses one interval."""


LORA_ALPHA: Final = 32
"""As in LoRA Without Regret (Schulman et al. 2025), whose learning rates are of this scale at every rank."""
MAX_ADAPTER_RANK: Final = 512
"""The largest rank of an adapter that vLLM 0.32 serves (``MaxLoRARanks``)."""
LORA_LEARNING_RATE: Final = 10.0
"""Times the learning rate of full weights: the best one was about ten times as high in supervised training and in
policy gradients, at every rank (LoRA Without Regret, Schulman et al. 2025)."""
MICRO_BATCH_TOKENS: Final = 2048
"""The activations of a micro-batch are a job's peak of memory: about 1.3 MB a token for a model of 135M parameters, and
7 GB for the whole job (measured); the memory of a small machine."""
HELD_OUT_SHARE: Final = 0.1
"""The tenth part that is customary for validation."""
MAX_PASSES: Final = 4.0
"""Up to four passes over the same text train nearly as well as new text (Muennighoff et al. 2023, "Scaling
Data-Constrained Language Models")."""
KL_BUDGET: Final = 0.1
"""Log-normal importance weights with a KL of 0.1 keep exp(-0.2) = 82 % of the effective sample size; at verl's
truncation of 2 few of them are cut."""
MIN_ENTROPY_SHARE: Final = 0.05
"""Successful runs fall to 27 % of their first entropy in two hundred steps (Cui et al. 2025, "The Entropy Mechanism of
Reinforcement Learning for Reasoning Language Models", section 2); a fifth of that is no longer exploration."""
MAX_FLAT_BATCHES: Final = 5
"""Groups without variance are rejected at the export, so one flat batch is rare and five in a row are the data."""
STALL_MINUTES: Final = 120.0
"""Four times gloo's own limit for a collective operation (PyTorch: 30 minutes), which fails by itself; beyond it
nothing in verl notices, as when a node with TransferQueue's storage dies."""
MAX_AGE_VERSIONS: Final[Mapping[JobKind, int]] = dict.fromkeys((kind for kind in JobKind if kind.is_policy_gradient), 8)
"""Policy gradients: verl's own default (``sampler.max_off_policy_threshold``); sft imitates an action however old."""


def default_max_age_versions(data: dict[str, Any]) -> int | None:
    """Return the age limit of rows, in versions for the kind in ``data``, the settings validated so far."""
    return MAX_AGE_VERSIONS.get(data.get("kind", DEFAULT_KIND))


def default_learning_rate(data: dict[str, Any]) -> float:
    """Return the learning rate for the kind in ``data``, the settings validated so far."""
    rate = LEARNING_RATES.get(data.get("kind", DEFAULT_KIND), LEARNING_RATES[DEFAULT_KIND])
    return rate * LORA_LEARNING_RATE if data.get("lora_rank") else rate


def default_loss_aggregation(data: dict[str, Any]) -> LossAggregation:
    """Return how token losses become one number for the kind in ``data``, the settings validated so far."""
    return LOSS_AGGREGATIONS.get(data.get("kind", DEFAULT_KIND), LOSS_AGGREGATIONS[DEFAULT_KIND])


def default_clip_ratio_low(data: dict[str, Any]) -> float:
    """Return the lower clip range for the kind in ``data``, the settings validated so far."""
    return CLIP_RATIOS.get(data.get("kind", DEFAULT_KIND), CLIP_RATIO)[0]


def default_clip_ratio_high(data: dict[str, Any]) -> float:
    """Return the upper clip range for the kind in ``data``, the settings validated so far."""
    return CLIP_RATIOS.get(data.get("kind", DEFAULT_KIND), CLIP_RATIO)[1]


def default_kl_coefficient(data: dict[str, Any]) -> float:
    """Return the weight of the KL term for the kind in ``data``, the settings validated so far."""
    return KL_COEFFICIENTS.get(data.get("kind", DEFAULT_KIND), 0.0)

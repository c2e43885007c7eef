"""Choose the metrics of training curves, time ranges, and bucket widths of time axes."""

from datetime import datetime
from typing import Final, NamedTuple


class Curve(NamedTuple):
    """A curve on the page of a job."""

    metric: str
    title: str
    help: str


JOB_CURVES: Final = (
    Curve("batch_reward", "batch reward", "Stored reward of the batch's rows; not what the new policy earns"),
    Curve("actor/pg_loss", "policy loss", "Falls only within a batch; a level means nothing"),
    Curve("train/loss", "loss", "sft: negative log-probability of a token, in nats; dpo: of a pair"),
    Curve("val/loss", "validation loss", "Negative log-probability of a token of the held-out rows, in nats"),
    Curve("dpo/accuracy", "preferred attempts", "Share of pairs whose better attempt has the higher implicit reward"),
    Curve("dpo/margin", "reward margin", "Implicit reward of the better attempt minus that of the worse one"),
    Curve("dpo/chosen_reward", "reward, better attempts", "beta times the log-ratio to the base"),
    Curve("dpo/rejected_reward", "reward, worse attempts", "beta times the log-ratio to the base"),
    Curve("dpo/chosen_logprob", "log-probability, better attempts", "Of a whole attempt, in nats"),
    Curve("dpo/rejected_logprob", "log-probability, worse attempts", "Of a whole attempt, in nats"),
    Curve(
        "dpo/kl_k2", "KL to the base (nats)", "A token; half the squared log-ratio of a row (k2), for rows of the base"
    ),
    Curve("critic/vf_loss", "value loss", "Half the mean squared error of the critic's values (ppo)"),
    Curve(
        "critic/vf_explained_var", "explained variance", "Share of the returns' variance in the critic's values (ppo)"
    ),
    Curve("actor/entropy", "entropy (nats)", "Mean over trained tokens; a fall to zero is a collapse"),
    Curve("rollout_corr/k3_kl", "KL to the sampler (nats)", "Mean over trained tokens of r - log r - 1 (k3)"),
    Curve("rollout_corr/rollout_is_mean", "importance weight, mean", "Near 1 on data of the same policy"),
    Curve("rollout_corr/rollout_is_max", "importance weight, largest", "Before truncation"),
    Curve("rollout_corr/rollout_is_eff_sample_size", "effective sample size", "Share of the batch that still counts"),
    Curve("rollout_corr/rollout_is_ratio_fraction_high", "truncated fraction", "Tokens whose weight was truncated"),
    Curve("actor/pg_clipfrac", "clipped fraction", "Tokens whose ratio was clipped, with several passes over a batch"),
    Curve("actor/grad_norm", "gradient norm", "Before clipping"),
    Curve("train/grad_norm", "gradient norm", "Before clipping"),
    Curve("rows/age_days/mean", "age of rows (days)", "Mean over the batch"),
    Curve("rows/age_versions/mean", "age of rows (versions)", "How far the base is ahead of the rows' policy"),
)
"""The curves of a job, in this order; those that a job did not record are not drawn."""

FIRST_METRICS: Final[tuple[str, ...]] = (
    "rollout_corr/k3_kl",
    "dpo/kl_k2",
    "actor/entropy",
    "actor/pg_loss",
    "train/loss",
    "val/loss",
    "critic/vf_loss",
)
"""Metrics whose curves are drawn first, in this order; the user can select any."""

RANGES: Final = {"1 h": 3_600, "24 h": 86_400, "7 d": 7 * 86_400, "30 d": 30 * 86_400, "All": 0}
"""Label to length in seconds; 0 means all time."""

_BUCKETS_S: Final = (60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)


def choose_metrics(names: list[str], at_most: int = 4) -> list[str]:
    """Return up to ``at_most`` metrics that a page draws by default: KL, entropy and losses first."""
    present = set(names)
    chosen = [name for name in FIRST_METRICS if name in present]
    return (chosen or [name for name in names if name.endswith(("loss", "grad_norm"))] or names)[:at_most]


def metric_title(name: str) -> str:
    """Return what a metric is called on pages."""
    return next((curve.title for curve in JOB_CURVES if curve.metric == name), name.rpartition("/")[2])


def metric_help(name: str) -> str | None:
    """Return what a metric means, None where it is not known."""
    return next((curve.help for curve in JOB_CURVES if curve.metric == name), None)


def choose_bucket_s(span_s: float, at_most: int = 24) -> int:
    """Seconds of one bucket so that ``span_s`` seconds need ``at_most`` of them, in steps that people read."""
    for size_s in _BUCKETS_S:
        if span_s / size_s <= at_most:
            return size_s
    return _BUCKETS_S[-1]


def time_span_s(first: list[datetime], last: list[datetime]) -> float:
    """Return the seconds from the earliest to the latest moment; 0 without any."""
    return (max(last) - min(first)).total_seconds() if first and last else 0.0


def since_s(label: str, now_s: float) -> int:
    """Return the start of the range ``label`` in seconds since the epoch; 0 for all time."""
    length_s = RANGES[label]
    return int(now_s) - length_s if length_s else 0

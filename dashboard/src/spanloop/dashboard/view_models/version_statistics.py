"""Shares and means of policy versions with 95 % intervals.

Invariant: a version with episodes has a row even when its count is zero, because zero failures is a result.
"""

from typing import Final

import polars as pl

Z_95: Final = 1.959964
"""Standard normal quantile of a two-sided 95 % interval."""


def with_intervals(versions: pl.DataFrame) -> pl.DataFrame:
    """Add success and mean reward with low and high to rows of ``dashboard_policy_versions``.

    Success is over episodes with a known outcome, with Wilson's interval; the reward has the normal interval of the
    mean. Values without episodes are null, and so is the interval of a single reward.
    """
    rated = pl.col("successes") + pl.col("failures")
    error = _standard_error("reward_stddev", "rewarded")
    return versions.with_columns(
        rated.alias("rated"),
        *_wilson(pl.col("successes"), rated, "success"),
        pl.col("mean_reward").fill_nan(None).alias("reward"),
        (pl.col("mean_reward").fill_nan(None) - error).alias("reward_low"),
        (pl.col("mean_reward").fill_nan(None) + error).alias("reward_high"),
    )


def component_means(versions: pl.DataFrame, components: pl.DataFrame) -> pl.DataFrame:
    """Return ``dashboard_reward_components`` in the order of ``versions``, with ``value``, ``low`` and ``high``."""
    error = _standard_error("stddev", "episodes")
    return _in_order(versions, components).select(
        "policy_version",
        "component",
        "episodes",
        pl.col("mean").alias("value"),
        (pl.col("mean") - error).alias("low"),
        (pl.col("mean") + error).alias("high"),
    )


def failure_shares(versions: pl.DataFrame, failures: pl.DataFrame) -> pl.DataFrame:
    """Return, for every class and version, the share of episodes with such a failure that was not recovered.

    ``versions`` give the order; ``failures`` are rows of ``dashboard_failure_rates``. The result has ``error_class``,
    ``fault_owner``, ``policy_version``, ``failures``, ``failed_episodes``, ``episodes``, ``value`` (the share), ``low``
    and ``high``; the class with the highest share is first.
    """
    classes = failures.select("error_class", "fault_owner").unique(maintain_order=True)
    grid = (
        classes.join(versions.select("policy_version", "episodes").with_row_index("order"), how="cross")
        .join(
            failures.select("error_class", "fault_owner", "policy_version", "failures", "failed_episodes"),
            on=["error_class", "fault_owner", "policy_version"],
            how="left",
        )
        .with_columns(pl.col("failures", "failed_episodes").fill_null(0))
    )
    shares = grid.with_columns(*_wilson(pl.col("failed_episodes"), pl.col("episodes"), "value"))
    worst = pl.col("value").max().over("error_class", "fault_owner")
    return shares.rename({"value_low": "low", "value_high": "high"}).sort(
        worst, "error_class", "fault_owner", "order", descending=[True, False, False, False]
    )


def counts_by_version(versions: pl.DataFrame, groups: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """Add each version's number and share of episodes to ``dashboard_failure_groups``.

    ``counts`` are rows of ``dashboard_failure_group_versions``. The result has one column for each version (episodes
    with the failure), in the order of ``versions``, and ``trend``, a list of the shares.
    """
    names: list[str] = versions["policy_version"].to_list()
    totals: list[int] = versions["episodes"].to_list()
    wide = groups
    for name in names:
        of_version = counts.filter(pl.col("policy_version") == name).select(
            "fingerprint", pl.col("episodes").alias(name)
        )
        wide = wide.join(of_version, on="fingerprint", how="left", maintain_order="left")
    shares = [pl.col(name) / total for name, total in zip(names, totals, strict=True)]
    trend = pl.concat_list(shares) if shares else pl.lit([], dtype=pl.List(pl.Float64))
    return wide.with_columns(pl.col(name).fill_null(0) for name in names).with_columns(trend.alias("trend"))


def _in_order(versions: pl.DataFrame, frame: pl.DataFrame) -> pl.DataFrame:
    order = versions.select("policy_version").with_row_index("order")
    return frame.join(order, on="policy_version", how="inner").sort("order", maintain_order=True).drop("order")


def _standard_error(stddev: str, count: str) -> pl.Expr:
    return pl.col(stddev).fill_nan(None) / pl.col(count).sqrt() * Z_95


def _wilson(part: pl.Expr, total: pl.Expr, name: str) -> list[pl.Expr]:
    """Return a share and its Wilson 95 % interval; null when ``total`` is 0."""
    n = pl.when(total > 0).then(total.cast(pl.Float64))
    share = part / n
    centre = (share + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 / (1 + Z_95**2 / n) * (share * (1 - share) / n + Z_95**2 / (4 * n**2)).sqrt()
    return [
        share.alias(name),
        (centre - half).clip(0, 1).alias(f"{name}_low"),
        (centre + half).clip(0, 1).alias(f"{name}_high"),
    ]

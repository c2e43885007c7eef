"""Altair charts over query results. Colour carries meaning only: green success, red failure, grey the rest."""

from typing import Final

import altair as alt
import polars as pl

from spanloop.dashboard.markup import AMBER, BLUE, GREEN, GREY, RED

_HEIGHT: Final = 240
_ROW: Final = alt.Step(30)
_OWNER_COLOURS: Final = {"policy": RED, "tool": AMBER, "environment": BLUE, "harness": "#8e4ec6", "user": GREY}

AnyChart = alt.Chart | alt.LayerChart | alt.FacetChart


def outcomes_over_time(frame: pl.DataFrame, bucket_s: int) -> AnyChart:
    """Episodes for each bucket, stacked by outcome; expects the columns of ``dashboard_outcomes_over_time``."""
    long = (
        frame.with_columns((pl.col("episodes") - pl.col("successes") - pl.col("failures")).alias("unknown"))
        .select(
            "bucket",
            pl.col("successes").cast(pl.Int64).alias("success"),
            pl.col("failures").cast(pl.Int64).alias("failure"),
            pl.col("unknown").cast(pl.Int64),
        )
        .unpivot(index="bucket", variable_name="outcome", value_name="episodes")
        .filter(pl.col("episodes") > 0)
        .with_columns(_bucket_end(bucket_s))
    )
    scale = alt.Scale(domain=["success", "failure", "unknown"], range=[GREEN, RED, GREY])
    chart: AnyChart = (
        alt.Chart(long, height=_HEIGHT)
        .mark_bar(orient="vertical")
        .encode(
            x=alt.X("bucket:T", title=None),
            x2="bucket_end:T",
            y=alt.Y("episodes:Q", title="episodes", axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color("outcome:N", scale=scale, legend=alt.Legend(orient="top", title=None)),
            tooltip=[alt.Tooltip("bucket:T", format="%Y-%m-%d %H:%M"), "outcome:N", "episodes:Q"],
        )
    )
    return chart


def success_over_time(frame: pl.DataFrame) -> AnyChart:
    """Success rate for each bucket; the points are as large as the bucket holds episodes."""
    rated = frame.filter(pl.col("successes") + pl.col("failures") > 0).with_columns(
        (pl.col("successes") / (pl.col("successes") + pl.col("failures"))).alias("rate")
    )
    base = alt.Chart(rated, height=_HEIGHT).encode(
        x=alt.X("bucket:T", title=None),
        y=alt.Y("rate:Q", title="success rate", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
    )
    points = base.mark_circle(color=GREEN, opacity=1).encode(
        size=alt.Size("episodes:Q", legend=None, scale=alt.Scale(range=[25, 160])),
        tooltip=[
            alt.Tooltip("bucket:T", format="%Y-%m-%d %H:%M"),
            alt.Tooltip("rate:Q", format=".0%"),
            "episodes:Q",
        ],
    )
    return alt.layer(base.mark_line(color=GREEN, strokeWidth=1.5, opacity=0.6), points)


def tokens_over_time(frame: pl.DataFrame, bucket_s: int) -> AnyChart:
    """Input and output tokens for each bucket."""
    long = frame.select(
        "bucket", pl.col("input_tokens").alias("input"), pl.col("output_tokens").alias("output")
    ).unpivot(index="bucket", variable_name="kind", value_name="tokens")
    long = long.with_columns(_bucket_end(bucket_s))
    scale = alt.Scale(domain=["input", "output"], range=[GREY, BLUE])
    chart: AnyChart = (
        alt.Chart(long, height=_HEIGHT)
        .mark_bar(orient="vertical")
        .encode(
            x=alt.X("bucket:T", title=None),
            x2="bucket_end:T",
            y=alt.Y("tokens:Q", title="tokens", axis=alt.Axis(format="~s")),
            color=alt.Color("kind:N", scale=scale, legend=alt.Legend(orient="top", title=None)),
            tooltip=[alt.Tooltip("bucket:T", format="%Y-%m-%d %H:%M"), "kind:N", alt.Tooltip("tokens:Q", format=",")],
        )
    )
    return chart


def success_by_version(frame: pl.DataFrame) -> AnyChart:
    """Success rate of each policy version, in the order of the frame, with the number of episodes beside it."""
    rated = frame.filter(pl.col("successes") + pl.col("failures") > 0).with_columns(
        (pl.col("successes") / (pl.col("successes") + pl.col("failures"))).alias("rate"),
        pl.format("{} episodes", pl.col("episodes")).alias("note"),
    )
    order = rated["policy_version"].to_list()
    base = alt.Chart(rated).encode(
        y=alt.Y("policy_version:N", sort=order, title=None, axis=alt.Axis(labelLimit=200)),
        x=alt.X(
            "rate:Q",
            title="success rate",
            scale=alt.Scale(domain=[0, 1.25]),
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
        ),
        tooltip=["policy_version:N", alt.Tooltip("rate:Q", format=".0%"), "episodes:Q", "successes:Q", "failures:Q"],
    )
    labels = base.mark_text(align="left", dx=6, color=GREY).encode(text="note:N")
    return alt.layer(base.mark_bar(color=GREEN, size=16), labels).properties(height=_ROW)


def reward_by_version(frame: pl.DataFrame) -> AnyChart:
    """Mean reward of each policy version with the standard error of the mean as a line."""
    shown = frame.filter(pl.col("rewarded") > 0).with_columns(
        (pl.col("reward_stddev").fill_nan(None).fill_null(0.0) / pl.col("rewarded").sqrt()).alias("error")
    )
    shown = shown.with_columns(
        (pl.col("mean_reward") - pl.col("error")).alias("low"), (pl.col("mean_reward") + pl.col("error")).alias("high")
    )
    order = shown["policy_version"].to_list()
    base = alt.Chart(shown).encode(
        y=alt.Y("policy_version:N", sort=order, title=None, axis=alt.Axis(labelLimit=200)),
        tooltip=[
            "policy_version:N",
            alt.Tooltip("mean_reward:Q", format="+.3f"),
            alt.Tooltip("error:Q", title="standard error", format=".3f"),
            alt.Tooltip("rewarded:Q", title="episodes with a reward"),
        ],
    )
    spread = base.mark_rule(color=GREY, strokeWidth=2).encode(x=alt.X("low:Q", title="mean reward"), x2="high:Q")
    points = base.mark_circle(color=BLUE, size=110, opacity=1).encode(x=alt.X("mean_reward:Q"))
    return alt.layer(spread, points).properties(height=_ROW)


def metric_by_step(frame: pl.DataFrame, title: str, *, is_tall: bool = False) -> AnyChart:
    """One metric of one or more jobs by training step; columns ``job``, ``step``, ``value``."""
    jobs = frame["job"].unique(maintain_order=True).to_list()
    legend = alt.Legend(orient="top", title=None) if len(jobs) > 1 else None
    # One job is blue like everything that is measured; several take the theme's colours.
    scale = alt.Scale() if len(jobs) > 1 else alt.Scale(range=[BLUE])
    chart: AnyChart = (
        alt.Chart(frame, height=280 if is_tall else 180)
        .mark_line(point=alt.OverlayMarkDef(size=36, filled=True))
        .encode(
            x=alt.X(
                "step:Q",
                title="training step",
                scale=alt.Scale(nice=False, zero=False, padding=8),
                axis=alt.Axis(tickMinStep=1, format="d", tickCount=12),
            ),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
            color=alt.Color("job:N", sort=jobs, legend=legend, scale=scale),
            tooltip=["job:N", "step:Q", alt.Tooltip("value:Q", format=".5g")],
        )
    )
    return chart


def failures_by_version(frame: pl.DataFrame) -> AnyChart:
    """Failures of each policy version, stacked by who owned them."""
    order = frame["policy_version"].unique(maintain_order=True).to_list()
    scale = alt.Scale(domain=list(_OWNER_COLOURS), range=list(_OWNER_COLOURS.values()))
    chart: AnyChart = (
        alt.Chart(frame, height=_ROW)
        .mark_bar(size=16)
        .encode(
            y=alt.Y("policy_version:N", sort=order, title=None, axis=alt.Axis(labelLimit=200)),
            x=alt.X("failures:Q", title="failures", axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color("fault_owner:N", scale=scale, legend=alt.Legend(orient="top", title=None)),
            tooltip=[
                "policy_version:N",
                "fault_owner:N",
                "failures:Q",
                "recovered:Q",
                alt.Tooltip("episodes:Q", title="episodes of the version"),
            ],
        )
    )
    return chart


def _bucket_end(bucket_s: int) -> pl.Expr:
    # A little short of the next bucket, so that neighbouring bars stay apart.
    return (pl.col("bucket") + pl.duration(milliseconds=bucket_s * 850)).alias("bucket_end")

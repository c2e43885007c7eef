"""Altair charts of query results. Green means success, red failure, grey neither."""

import json
import math
from collections.abc import Sequence
from typing import Final

import altair as alt
import polars as pl

from spanloop.dashboard.view_models.formatting import AMBER, BLUE, GREEN, GREY, RED

_HEIGHT: Final = 240
_ROW: Final = alt.Step(30)
_OWNER_COLOURS: Final = {
    "policy": RED,
    "tool": AMBER,
    "environment": BLUE,
    "harness": "#8e4ec6",
    "user": GREY,
    "unknown": GREY,
}

_TIME: Final = alt.Axis(
    # more ticks overlap, and the labels that remain of days and noons name no day
    tickCount=8,
    labelOverlap="greedy",
    labelExpr="timeFormat(datum.value, '%H%M%S') == '000000' ? timeFormat(datum.value, '%m-%d') : "
    "[timeFormat(datum.value, seconds(datum.value) ? '%H:%M:%S' : '%H:%M'), "
    "datum.index == 0 ? timeFormat(datum.value, '%Y-%m-%d') : '']",
)
"""An axis of time: 24 hours a day, and the date at midnight and below the first label."""

_SAME_TAB: Final = {"embedOptions": {"loader": {"target": "_self"}}}
"""Links of a chart open in the page's own tab."""

AnyChart = alt.Chart | alt.LayerChart | alt.FacetChart


def outcomes_over_time(frame: pl.DataFrame, bucket_s: int) -> AnyChart:
    """Draw the episodes of each bucket, stacked by outcome, from ``dashboard_outcomes_over_time``."""
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
            x=alt.X("bucket:T", title=None, axis=_TIME),
            x2="bucket_end:T",
            y=alt.Y("episodes:Q", title="episodes", axis=alt.Axis(tickMinStep=1, format="d")),
            color=alt.Color("outcome:N", scale=scale, legend=alt.Legend(orient="top", title=None)),
            tooltip=[alt.Tooltip("bucket:T", format="%Y-%m-%d %H:%M"), "outcome:N", "episodes:Q"],
        )
    )
    return chart


def success_over_time(frame: pl.DataFrame) -> AnyChart:
    """Draw the success rate of each bucket; the size of a point is the number of its episodes."""
    rated = frame.filter(pl.col("successes") + pl.col("failures") > 0).with_columns(
        (pl.col("successes") / (pl.col("successes") + pl.col("failures"))).alias("rate")
    )
    base = alt.Chart(rated, height=_HEIGHT).encode(
        x=alt.X("bucket:T", title=None, axis=_TIME),
        y=alt.Y("rate:Q", title="success rate", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
    )
    points = base.mark_circle(color=GREEN, opacity=1).encode(
        size=alt.Size("episodes:Q", legend=None, scale=alt.Scale(range=[25, 160])),
        tooltip=[alt.Tooltip("bucket:T", format="%Y-%m-%d %H:%M"), alt.Tooltip("rate:Q", format=".0%"), "episodes:Q"],
    )
    return alt.layer(base.mark_line(color=GREEN, strokeWidth=1.5, opacity=0.6), points)


def tokens_over_time(frame: pl.DataFrame, bucket_s: int) -> AnyChart:
    """Draw the input and output tokens of each bucket."""
    long = frame.select(
        "bucket", pl.col("input_tokens").alias("input"), pl.col("output_tokens").alias("output")
    ).unpivot(index="bucket", variable_name="kind", value_name="tokens")
    long = long.with_columns(_bucket_end(bucket_s))
    scale = alt.Scale(domain=["input", "output"], range=[GREY, BLUE])
    chart: AnyChart = (
        alt.Chart(long, height=_HEIGHT)
        .mark_bar(orient="vertical")
        .encode(
            x=alt.X("bucket:T", title=None, axis=_TIME),
            x2="bucket_end:T",
            y=alt.Y("tokens:Q", title="tokens", axis=alt.Axis(labelExpr="format(datum.value, '~s')")),
            color=alt.Color("kind:N", scale=scale, legend=alt.Legend(orient="top", title=None)),
            tooltip=[alt.Tooltip("bucket:T", format="%Y-%m-%d %H:%M"), "kind:N", alt.Tooltip("tokens:Q", format=",")],
        )
    )
    return chart


def cost_over_time(frame: pl.DataFrame, bucket_s: int, currency: str, zone: str) -> AnyChart:
    """Draw the cost of each bucket; columns ``bucket``, ``cost`` and ``href``, which a click on the bar opens."""
    chart: AnyChart = (
        alt.Chart(frame.with_columns(_bucket_end(bucket_s)), height=_HEIGHT)
        .mark_bar(orient="vertical", color=BLUE, cursor="pointer")
        .encode(
            x=alt.X("bucket:T", title=f"time ({zone})", axis=_TIME),
            x2="bucket_end:T",
            y=alt.Y("cost:Q", title=currency),
            href="href:N",
            tooltip=[alt.Tooltip("bucket:T", format="%Y-%m-%d %H:%M"), alt.Tooltip("cost:Q", format=",.4f")],
        )
        .properties(usermeta=_SAME_TAB)
    )
    return chart


def error_rates(frame: pl.DataFrame, deployments: pl.DataFrame, values: Sequence[str], zone: str) -> AnyChart:
    """Draw the error rate of each value over time, with deployments as lines.

    Args:
        frame: Columns ``bucket``, ``at`` (where in the bucket the point stands), ``value``, ``rate``, ``failures``,
            ``episodes`` and ``href``, which a click on the point opens.
        deployments: Columns ``at``, ``version`` and ``event``.
        values: The values in the order of the legend.
        zone: Name of the viewer's time zone.
    """
    colours = [_OWNER_COLOURS[each] for each in values] if set(values) <= set(_OWNER_COLOURS) else None
    scale = alt.Scale(domain=list(values), range=colours) if colours else alt.Scale(domain=list(values))
    base = alt.Chart(frame).encode(
        x=alt.X("at:T", title=f"time ({zone})", axis=_TIME),
        y=alt.Y("rate:Q", title="error rate", axis=alt.Axis(format="%")),
        color=alt.Color("value:N", scale=scale, legend=alt.Legend(orient="top", title=None)),
    )
    points = base.mark_circle(size=70, opacity=1, cursor="pointer").encode(
        href="href:N",
        tooltip=[
            "value:N",
            alt.Tooltip("bucket:T", format="%Y-%m-%d %H:%M"),
            alt.Tooltip("rate:Q", format=".1%"),
            alt.Tooltip("failures:Q", title="failed episodes"),
            alt.Tooltip("episodes:Q", title="episodes"),
        ],
    )
    layers = [base.mark_line(strokeWidth=1.5, opacity=0.6), points]
    if not deployments.is_empty():
        marks = alt.Chart(deployments).encode(x="at:T")
        tooltip = [alt.Tooltip("at:T", format="%Y-%m-%d %H:%M", title=f"time ({zone})"), "event:N", "version:N"]
        layers = [
            marks.mark_rule(color=GREY, strokeDash=[4, 3]).encode(tooltip=tooltip),
            marks.mark_text(
                align="left", baseline="bottom", dx=3, dy=-2, angle=90, y=0, fontSize=11, color=GREY
            ).encode(text="label:N", tooltip=tooltip),
            *layers,
        ]
    return alt.layer(*layers).properties(height=320, usermeta=_SAME_TAB)


def success_by_version(frame: pl.DataFrame) -> AnyChart:
    """Draw the success rate and number of episodes of each policy version, in the order of the frame."""
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


def value_by_version(
    frame: pl.DataFrame, title: str, *, is_share: bool = False, colour: str = BLUE, height: int = _HEIGHT
) -> AnyChart:
    """Draw a value of each policy version, in the order of the frame, with its interval as a line.

    Columns ``policy_version``, ``value``, ``low``, ``high`` (null: the interval is unknown), ``episodes``. With
    ``is_share`` the value lies between 0 and 1 and is shown as a percentage; ``height`` is in pixels.
    """
    known = frame.filter(pl.col("value").is_not_null())
    order = known["policy_version"].unique(maintain_order=True).to_list()
    scale = alt.Scale(domain=[0, 1]) if is_share else alt.Scale(zero=False, nice=True, padding=8)
    axis = alt.Axis(format="%") if is_share else alt.Axis()
    number_format = ".1%" if is_share else "+.3f"
    base = alt.Chart(known, height=height).encode(
        x=alt.X(
            "policy_version:N", sort=order, title=None, axis=alt.Axis(labelAngle=0, labelLimit=160, labelFlush=False)
        ),
        tooltip=[
            alt.Tooltip("policy_version:N", title="policy"),
            alt.Tooltip("value:Q", title=title, format=number_format),
            alt.Tooltip("low:Q", title="95 % from", format=number_format),
            alt.Tooltip("high:Q", title="to", format=number_format),
            "episodes:Q",
        ],
    )
    y = alt.Y("value:Q", title=title, scale=scale, axis=axis)
    line = base.mark_line(color=colour, strokeWidth=1.5, opacity=0.45).encode(y=y)
    interval = base.mark_rule(color=colour, strokeWidth=2.5, opacity=0.75).encode(y=alt.Y("low:Q"), y2="high:Q")
    points = base.mark_circle(color=colour, size=110, opacity=1).encode(y=y)
    labels = base.mark_text(align="left", dx=9, dy=-1, color=GREY, fontSize=12).encode(
        y=y, text=alt.Text("value:Q", format=".0%" if is_share else "+.2f")
    )
    return alt.layer(line, interval, points, labels)


def champion_by_decision(frame: pl.DataFrame, title: str, *, is_share: bool) -> AnyChart:
    """Draw each candidate in the colour of its outcome, and the champion after each decision as steps.

    The frame is a ``champion_series``; with ``is_share`` values lie between 0 and 1 and are shown as percentages.
    """
    outcomes = {"champion": BLUE, "promoted": GREEN, "kept": GREY, "undecided": AMBER, "rolled_back": RED}
    scale = alt.Scale(domain=[0, 1]) if is_share else alt.Scale(zero=False, nice=True, padding=8)
    number_format = ".1%" if is_share else ".3f"
    base = alt.Chart(frame, height=_HEIGHT).encode(
        x=alt.X(
            "look:O",
            title="version, in the order of the decisions",
            axis=alt.Axis(labelExpr=_labels(frame["version"]), labelAngle=0, labelLimit=160),
        )
    )
    axis = alt.Axis(format="%") if is_share else alt.Axis()
    champion = base.mark_line(interpolate="step-after", color=GREEN, strokeWidth=1.5, opacity=0.6).encode(
        y=alt.Y("champion_value:Q", title=title, scale=scale, axis=axis)
    )
    points = base.mark_circle(size=130, opacity=1).encode(
        y=alt.Y("value:Q", title=title, scale=scale, axis=axis),
        color=alt.Color(
            "decision:N",
            scale=alt.Scale(domain=list(outcomes), range=list(outcomes.values())),
            legend=alt.Legend(orient="top", title=None),
        ),
        tooltip=[
            "version:N",
            "decision:N",
            alt.Tooltip("value:Q", title=title, format=number_format),
            alt.Tooltip("champion:N", title="champion afterwards"),
            alt.Tooltip("why:N"),
        ],
    )
    labels = base.mark_text(dy=-14, color=GREY, fontSize=12).encode(
        y=alt.Y("value:Q", scale=scale), text=alt.Text("value:Q", format=".0%" if is_share else ".2f")
    )
    return alt.layer(champion, points, labels)


def _labels(versions: pl.Series) -> str:
    """Return the expression that labels the positions of an axis, where a version may stand more than once."""
    return f"{json.dumps(versions.to_list())}[datum.value]"


def share_bars(frame: pl.DataFrame, highest: float, fault_owner: str) -> AnyChart:
    """Draw the share of each version's episodes as bars in the colour of the fault owner.

    Columns ``policy_version``, ``value``, ``low``, ``high``, ``failed_episodes``, ``failures``, ``episodes``. Charts
    beside each other share one axis, which ends at ``highest``.
    """
    order = frame["policy_version"].to_list()
    base = alt.Chart(frame, height=150).encode(
        x=alt.X(
            "policy_version:N", sort=order, title=None, axis=alt.Axis(labelAngle=0, labelLimit=90, labelFlush=False)
        ),
        y=alt.Y(
            "value:Q",
            title=None,
            scale=alt.Scale(domain=[0, highest], nice=False),
            axis=alt.Axis(format="%", tickCount=3),
        ),
        tooltip=[
            alt.Tooltip("policy_version:N", title="policy"),
            alt.Tooltip("value:Q", title="share of episodes", format=".1%"),
            alt.Tooltip("low:Q", title="95 % from", format=".1%"),
            alt.Tooltip("high:Q", title="to", format=".1%"),
            alt.Tooltip("failed_episodes:Q", title="episodes with it, not recovered"),
            alt.Tooltip("failures:Q", title="failures, including recovered ones"),
            alt.Tooltip("episodes:Q", title="episodes of the version"),
        ],
    )
    bars = base.mark_bar(color=_OWNER_COLOURS.get(fault_owner, GREY), size=26)
    labels = base.mark_text(dy=-7, color=GREY).encode(text=alt.Text("value:Q", format=".1%"))
    return alt.layer(bars, labels)


def metric_by_step(
    frame: pl.DataFrame,
    *,
    smoothing: float = 0.0,
    steps: tuple[int, int] | None = None,
    is_tall: bool = False,
) -> AnyChart:
    """Draw one metric of one or more jobs over each other by training step; a drag moves, Shift and the wheel zoom.

    Args:
        frame: Columns ``job``, ``step``, ``value``.
        smoothing: Weight of the past in an exponential moving average, from 0 to below 1; above 0 the values
            themselves are drawn faintly behind it.
        steps: The first and the last step that are drawn; None for all.
        is_tall: Whether the chart is drawn higher.
    """
    jobs = frame["job"].unique(maintain_order=True).to_list()
    legend = alt.Legend(orient="top", title=None, labelLimit=400, columns=1) if len(jobs) > 1 else None
    # One job is blue, as all measured values are; several jobs take the theme's colours.
    scale = alt.Scale() if len(jobs) > 1 else alt.Scale(range=[BLUE])
    past = pl.col("value").ewm_mean(alpha=1 - smoothing, adjust=True, ignore_nulls=True)
    smoothed = frame.sort("step").with_columns(past.over("job").alias("smoothed")) if smoothing else frame
    drawn = smoothed if steps is None else smoothed.filter(pl.col("step").is_between(*steps))
    value_scale = _value_scale(drawn["value"])
    base = alt.Chart(drawn).encode(
        x=alt.X(
            "step:Q",
            title="training step",
            scale=alt.Scale(nice=False, zero=False, padding=8),
            axis=alt.Axis(tickMinStep=1, format="d", tickCount=12),
        ),
        color=alt.Color("job:N", sort=jobs, legend=legend, scale=scale),
    )
    tooltip = ["job:N", "step:Q", alt.Tooltip("value:Q", format=".5g")]
    y = alt.Y("value:Q", title=None, scale=value_scale)
    zoom = alt.selection_interval(bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]")
    height = 280 if is_tall else 180
    if not smoothing:
        points = alt.OverlayMarkDef(size=36, filled=True)
        chart: AnyChart = base.mark_line(point=points).encode(y=y, tooltip=tooltip).properties(height=height)
        return chart.add_params(zoom)
    raw = base.mark_line(opacity=0.25, strokeWidth=1).encode(y=y).add_params(zoom)
    average = alt.Y("smoothed:Q", title=None, scale=value_scale)
    line = base.mark_line(point=alt.OverlayMarkDef(size=36, filled=True, opacity=0)).encode(
        y=average, tooltip=[*tooltip, alt.Tooltip("smoothed:Q", format=".5g")]
    )
    return alt.layer(raw, line).properties(height=height)


def _value_scale(values: pl.Series) -> alt.Scale:
    """Return a scale that shows a constant as a flat line instead of magnifying its rounding noise."""
    finite = [float(value) for value in values.drop_nulls() if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    margin = max(abs(low), abs(high)) * 0.01
    if not margin:
        return alt.Scale(domain=[0, 1])
    return (
        alt.Scale(zero=False, padding=8)
        if high - low > margin / 100
        else alt.Scale(domain=[low - margin, high + margin])
    )


def _bucket_end(bucket_s: int) -> pl.Expr:
    # 85 % of the bucket, so that neighbouring bars stay apart.
    return (pl.col("bucket") + pl.duration(milliseconds=bucket_s * 850)).alias("bucket_end")

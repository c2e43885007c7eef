"""Vega-Lite charts of query results. Green means success, red failure, grey neither."""
# pyright: reportUnknownMemberType=false

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from spanloop.dashboard.components.vega_lite import (
    TIME_AXIS,
    Definition,
    category,
    layer,
    legend,
    minute,
    number,
    time,
)
from spanloop.dashboard.view_models.formatting import AMBER, BLUE, GREEN, GREY, RED

_HEIGHT: Final = 240
_TALL: Final = 320
_ROW: Final = {"step": 30}
_OWNER_COLOURS: Final = {
    "policy": RED,
    "tool": AMBER,
    "environment": BLUE,
    "harness": "#8e4ec6",
    "user": GREY,
    "unknown": GREY,
}

# names of data sets
_ROWS: Final = "rows"
_DEPLOYMENTS: Final = "deployments"


class Chart(NamedTuple):
    """A chart that is not drawn yet.

    Attributes:
        spec: A Vega-Lite specification; its data sets have the names in ``data``.
        data: Rows of each data set.
    """

    spec: Definition
    data: Mapping[str, pl.DataFrame]


def draw(chart: Chart, container: DeltaGenerator | None = None) -> None:
    """Draw a chart in the container, else where the page is being drawn."""
    # Every data set has a name: Streamlit inserts the rows of its data argument into a single named one.
    spec = {**chart.spec, "datasets": dict(chart.data)}
    st.vega_lite_chart(spec=spec) if container is None else container.vega_lite_chart(spec=spec)


def outcomes_over_time(frame: pl.DataFrame, bucket_s: int) -> Chart:
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
    )
    scale = {"domain": ["success", "failure", "unknown"], "range": [GREEN, RED, GREY]}
    encoding = {
        **_bucket_bars(None),
        "y": number("episodes", title="episodes", axis={"tickMinStep": 1, "format": "d"}),
        "color": category("outcome", scale=scale, legend=legend()),
        "tooltip": [minute("bucket"), category("outcome"), number("episodes")],
    }
    bars = layer("bar", encoding, orient="vertical")
    return _chart(long.with_columns(_bucket_end(bucket_s)), **bars, height=_HEIGHT)


def success_over_time(frame: pl.DataFrame) -> Chart:
    """Draw the success rate of each bucket; the size of a point is the number of its episodes."""
    rated = frame.filter(pl.col("successes") + pl.col("failures") > 0).with_columns(
        (pl.col("successes") / (pl.col("successes") + pl.col("failures"))).alias("rate")
    )
    base = {
        "x": time("bucket", title=None, axis=TIME_AXIS),
        "y": number("rate", title="success rate", scale={"domain": [0, 1]}, axis={"format": "%"}),
    }
    points = {
        **base,
        "size": number("episodes", legend=None, scale={"range": [25, 160]}),
        "tooltip": [minute("bucket"), number("rate", format=".0%"), number("episodes")],
    }
    layers = [
        layer("line", base, color=GREEN, strokeWidth=1.5, opacity=0.6),
        layer("circle", points, color=GREEN, opacity=1),
    ]
    return _chart(rated, layer=layers, height=_HEIGHT)


def tokens_over_time(frame: pl.DataFrame, bucket_s: int) -> Chart:
    """Draw the input and output tokens of each bucket."""
    long = frame.select(
        "bucket", pl.col("input_tokens").alias("input"), pl.col("output_tokens").alias("output")
    ).unpivot(index="bucket", variable_name="kind", value_name="tokens")
    scale = {"domain": ["input", "output"], "range": [GREY, BLUE]}
    encoding = {
        **_bucket_bars(None),
        "y": number("tokens", title="tokens", axis={"labelExpr": "format(datum.value, '~s')"}),
        "color": category("kind", scale=scale, legend=legend()),
        "tooltip": [minute("bucket"), category("kind"), number("tokens", format=",")],
    }
    bars = layer("bar", encoding, orient="vertical")
    return _chart(long.with_columns(_bucket_end(bucket_s)), **bars, height=_HEIGHT)


def cost_over_time(frame: pl.DataFrame, bucket_s: int, currency: str, zone: str) -> Chart:
    """Draw the cost of each bucket; columns ``bucket``, ``cost`` and ``href``, which a click on the bar opens."""
    encoding = {
        **_bucket_bars(f"time ({zone})"),
        "y": number("cost", title=currency),
        "href": category("href"),
        "tooltip": [minute("bucket"), number("cost", format=",.4f")],
    }
    bars = layer("bar", encoding, orient="vertical", color=BLUE, cursor="pointer")
    return _chart(frame.with_columns(_bucket_end(bucket_s)), **bars, height=_HEIGHT)


def error_rates(frame: pl.DataFrame, deployments: pl.DataFrame, values: Sequence[str], zone: str) -> Chart:
    """Draw the error rate of each value over time, with deployments as lines.

    Args:
        frame: Columns ``bucket``, ``at`` (where in the bucket the point stands), ``value``, ``rate``, ``failures``,
            ``episodes`` and ``href``, which a click on the point opens.
        deployments: Columns ``at``, ``version``, ``event`` and ``label``.
        values: The values in the order of the legend.
        zone: Name of the viewer's time zone.
    """
    scale: Definition = {"domain": list(values)}
    if set(values) <= set(_OWNER_COLOURS):
        scale["range"] = [_OWNER_COLOURS[each] for each in values]
    base = {
        "x": time("at", title=f"time ({zone})", axis=TIME_AXIS),
        "y": number("rate", title="error rate", axis={"format": "%"}),
        "color": category("value", scale=scale, legend=legend()),
    }
    points = {
        **base,
        "href": category("href"),
        "tooltip": [
            category("value"),
            minute("bucket"),
            number("rate", format=".1%"),
            number("failures", title="failed episodes"),
            number("episodes", title="episodes"),
        ],
    }
    layers = [
        layer("line", base, strokeWidth=1.5, opacity=0.6),
        layer("circle", points, size=70, opacity=1, cursor="pointer"),
    ]
    if deployments.is_empty():
        return _chart(frame, layer=layers, height=_TALL)
    tooltip = [minute("at", title=f"time ({zone})"), category("event"), category("version")]
    rule = {"x": time("at"), "tooltip": tooltip}
    label = {"align": "left", "baseline": "bottom", "dx": 3, "dy": -2, "angle": 90, "y": 0, "fontSize": 11}
    marks = [
        layer("rule", rule, color=GREY, strokeDash=[4, 3]),
        layer("text", {**rule, "text": category("label")}, color=GREY, **label),
    ]
    marks = [{"data": {"name": _DEPLOYMENTS}, **each} for each in marks]
    spec, data = _chart(frame, layer=[*marks, *layers], height=_TALL)
    return Chart(spec, {**data, _DEPLOYMENTS: deployments})


def success_by_version(frame: pl.DataFrame) -> Chart:
    """Draw the success rate and number of episodes of each policy version, in the order of the frame."""
    rated = frame.filter(pl.col("successes") + pl.col("failures") > 0).with_columns(
        (pl.col("successes") / (pl.col("successes") + pl.col("failures"))).alias("rate"),
        pl.format("{} episodes", pl.col("episodes")).alias("note"),
    )
    order = rated["policy_version"].to_list()
    axis = {"format": "%", "values": [0, 0.25, 0.5, 0.75, 1]}
    counts = [number(name) for name in ("episodes", "successes", "failures")]
    base = {
        "y": category("policy_version", sort=order, title=None, axis={"labelLimit": 200}),
        "x": number("rate", title="success rate", scale={"domain": [0, 1.25]}, axis=axis),
        "tooltip": [category("policy_version"), number("rate", format=".0%"), *counts],
    }
    layers = [
        layer("bar", base, color=GREEN, size=16),
        layer("text", {**base, "text": category("note")}, align="left", dx=6, color=GREY),
    ]
    return _chart(rated, layer=layers, height=_ROW)


def value_by_version(
    frame: pl.DataFrame, title: str, *, is_share: bool = False, colour: str = BLUE, height: int = _HEIGHT
) -> Chart:
    """Draw a value of each policy version, in the order of the frame, with its interval as a line.

    Columns ``policy_version``, ``value``, ``low``, ``high`` (null: the interval is unknown), ``episodes``. With
    ``is_share`` the value lies between 0 and 1 and is shown as a percentage; ``height`` is in pixels.
    """
    known = frame.filter(pl.col("value").is_not_null())
    order = known["policy_version"].unique(maintain_order=True).to_list()
    number_format = ".1%" if is_share else "+.3f"
    base = {
        "x": _versions(order, label_limit=160),
        "tooltip": [
            category("policy_version", title="policy"),
            number("value", title=title, format=number_format),
            *_interval(number_format),
            number("episodes"),
        ],
    }
    value = {**base, "y": number("value", title=title, **_share_or_value(is_share=is_share))}
    low_to_high = {**base, "y": number("low"), "y2": {"field": "high"}}
    label = {**value, "text": number("value", format=".0%" if is_share else "+.2f")}
    layers = [
        layer("line", value, color=colour, strokeWidth=1.5, opacity=0.45),
        layer("rule", low_to_high, color=colour, strokeWidth=2.5, opacity=0.75),
        layer("circle", value, color=colour, size=110, opacity=1),
        layer("text", label, align="left", dx=9, dy=-1, color=GREY, fontSize=12),
    ]
    return _chart(known, layer=layers, height=height)


def champion_by_decision(frame: pl.DataFrame, title: str, *, is_share: bool) -> Chart:
    """Draw each candidate in the colour of its outcome, and the champion after each decision as steps.

    The frame is a ``champion_series``; with ``is_share`` values lie between 0 and 1 and are shown as percentages.
    """
    outcomes = {"champion": BLUE, "promoted": GREEN, "kept": GREY, "undecided": AMBER, "rolled_back": RED}
    colours = {"domain": list(outcomes), "range": list(outcomes.values())}
    axis = {"labelExpr": _labels(frame["version"]), "labelAngle": 0, "labelLimit": 160}
    x = {"field": "look", "type": "ordinal", "title": "version, in the order of the decisions", "axis": axis}
    scaled = _share_or_value(is_share=is_share)
    champion = {"x": x, "y": number("champion_value", title=title, **scaled)}
    points = {
        "x": x,
        "y": number("value", title=title, **scaled),
        "color": category("decision", scale=colours, legend=legend()),
        "tooltip": [
            category("version"),
            category("decision"),
            number("value", title=title, format=".1%" if is_share else ".3f"),
            category("champion", title="champion afterwards"),
            category("why"),
        ],
    }
    label = {
        "x": x,
        "y": number("value", scale=scaled["scale"]),
        "text": number("value", format=".0%" if is_share else ".2f"),
    }
    layers = [
        layer("line", champion, interpolate="step-after", color=GREEN, strokeWidth=1.5, opacity=0.6),
        layer("circle", points, size=130, opacity=1),
        layer("text", label, dy=-14, color=GREY, fontSize=12),
    ]
    return _chart(frame, layer=layers, height=_HEIGHT)


def share_bars(frame: pl.DataFrame, highest: float, fault_owner: str) -> Chart:
    """Draw the share of each version's episodes as bars in the colour of the fault owner.

    Columns ``policy_version``, ``value``, ``low``, ``high``, ``failed_episodes``, ``failures``, ``episodes``. Charts
    beside each other share one axis, which ends at ``highest``.
    """
    scale = {"domain": [0, highest], "nice": False}
    base = {
        "x": _versions(frame["policy_version"].to_list(), label_limit=90),
        "y": number("value", title=None, scale=scale, axis={"format": "%", "tickCount": 3}),
        "tooltip": [
            category("policy_version", title="policy"),
            number("value", title="share of episodes", format=".1%"),
            *_interval(".1%"),
            number("failed_episodes", title="episodes with it, not recovered"),
            number("failures", title="failures, including recovered ones"),
            number("episodes", title="episodes of the version"),
        ],
    }
    layers = [
        layer("bar", base, color=_OWNER_COLOURS.get(fault_owner, GREY), size=26),
        layer("text", {**base, "text": number("value", format=".1%")}, dy=-7, color=GREY),
    ]
    return _chart(frame, layer=layers, height=150)


def metric_by_step(
    frame: pl.DataFrame,
    *,
    smoothing: float = 0.0,
    steps: tuple[int, int] | None = None,
    is_tall: bool = False,
) -> Chart:
    """Draw one metric of one or more jobs over each other by training step; a drag moves, Shift and the wheel zoom.

    Args:
        frame: Columns ``job``, ``step``, ``value``.
        smoothing: Weight of the past in an exponential moving average, from 0 to below 1; above 0 the values
            themselves are drawn faintly behind it.
        steps: The first and the last step that are drawn; None for all.
        is_tall: Whether the chart is drawn higher.
    """
    jobs = frame["job"].unique(maintain_order=True).to_list()
    job_legend = legend(labelLimit=400, columns=1) if len(jobs) > 1 else None
    # One job is blue, as all measured values are; several jobs take the theme's colours.
    colours = {} if len(jobs) > 1 else {"range": [BLUE]}
    past = pl.col("value").ewm_mean(alpha=1 - smoothing, adjust=True, ignore_nulls=True)
    smoothed = frame.sort("step").with_columns(past.over("job").alias("smoothed")) if smoothing else frame
    drawn = smoothed if steps is None else smoothed.filter(pl.col("step").is_between(*steps))
    value_scale = _value_scale(drawn["value"])
    axis = {"tickMinStep": 1, "format": "d", "tickCount": 12}
    base = {
        "x": number("step", title="training step", scale={"nice": False, "zero": False, "padding": 8}, axis=axis),
        "color": category("job", sort=jobs, legend=job_legend, scale=colours),
    }
    values = {**base, "y": number("value", title=None, scale=value_scale)}
    tooltip = [category("job"), number("step"), number("value", format=".5g")]
    select = {"type": "interval", "encodings": ["x"], "zoom": "wheel![event.shiftKey]"}
    zoom = {"params": [{"name": "zoom", "select": select, "bind": "scales"}]}
    height = 280 if is_tall else 180
    point = {"size": 36, "filled": True}
    if not smoothing:
        return _chart(drawn, **layer("line", {**values, "tooltip": tooltip}, point=point), **zoom, height=height)
    averages = {
        **base,
        "y": number("smoothed", title=None, scale=value_scale),
        "tooltip": [*tooltip, number("smoothed", format=".5g")],
    }
    raw = layer("line", values, opacity=0.25, strokeWidth=1)
    line = layer("line", averages, point={**point, "opacity": 0})
    return _chart(drawn, layer=[{**raw, **zoom}, line], height=height)


def _value_scale(values: pl.Series) -> Definition:
    """Return a scale that shows a constant as a flat line instead of magnifying its rounding noise."""
    finite = [float(value) for value in values.drop_nulls() if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    margin = max(abs(low), abs(high)) * 0.01
    if not margin:
        return {"domain": [0, 1]}
    return {"zero": False, "padding": 8} if high - low > margin / 100 else {"domain": [low - margin, high + margin]}


def _share_or_value(*, is_share: bool) -> Definition:
    """Return the scale and the axis of shares, from 0 to 100 %, else of values."""
    if is_share:
        return {"scale": {"domain": [0, 1]}, "axis": {"format": "%"}}
    return {"scale": {"zero": False, "nice": True, "padding": 8}, "axis": {}}


def _labels(versions: pl.Series) -> str:
    """Return the expression that labels the positions of an axis, where a version may stand more than once."""
    return f"{json.dumps(versions.to_list())}[datum.value]"


def _versions(order: Iterable[str], label_limit: int) -> Definition:
    axis = {"labelAngle": 0, "labelLimit": label_limit, "labelFlush": False}
    return category("policy_version", sort=list(order), title=None, axis=axis)


def _interval(number_format: str) -> list[Definition]:
    return [
        number("low", title="95 % from", format=number_format),
        number("high", title="to", format=number_format),
    ]


def _bucket_bars(title: str | None) -> Definition:
    return {"x": time("bucket", title=title, axis=TIME_AXIS), "x2": {"field": "bucket_end"}}


def _bucket_end(bucket_s: int) -> pl.Expr:
    # 85 % of the bucket, so that neighbouring bars stay apart.
    return (pl.col("bucket") + pl.duration(milliseconds=bucket_s * 850)).alias("bucket_end")


def _chart(frame: pl.DataFrame, **properties: object) -> Chart:
    return Chart({"data": {"name": _ROWS}, **properties}, {_ROWS: frame})

"""Parts of Vega-Lite specifications: the encodings of columns, a layer, a legend, the axis of time."""

from typing import Any, Final

Definition = dict[str, Any]
"""A specification or a part of it, as the documentation of Vega-Lite describes it."""

TIME_AXIS: Final = {
    # more ticks overlap, and the labels that remain of days and noons name no day
    "tickCount": 8,
    "labelOverlap": "greedy",
    "labelExpr": "timeFormat(datum.value, '%H%M%S') == '000000' ? timeFormat(datum.value, '%m-%d') : "
    "[timeFormat(datum.value, seconds(datum.value) ? '%H:%M:%S' : '%H:%M'), "
    "datum.index == 0 ? timeFormat(datum.value, '%Y-%m-%d') : '']",
}
"""An axis of time: 24 hours a day, and the date at midnight and below the first label."""


def number(field: str, **properties: object) -> Definition:
    """Return the encoding of a column of numbers."""
    return {"field": field, "type": "quantitative", **properties}


def category(field: str, **properties: object) -> Definition:
    """Return the encoding of a column of texts."""
    return {"field": field, "type": "nominal", **properties}


def time(field: str, **properties: object) -> Definition:
    """Return the encoding of a column of times."""
    return {"field": field, "type": "temporal", **properties}


def minute(field: str, **properties: object) -> Definition:
    """Return the encoding of a column of times that a tooltip shows to the minute."""
    return time(field, format="%Y-%m-%d %H:%M", **properties)


def legend(**properties: object) -> Definition:
    """Return a legend above the chart; a new dictionary each time, because Streamlit changes its title."""
    return {"orient": "top", "title": None, **properties}


def layer(mark: str, encoding: Definition, **properties: object) -> Definition:
    """Return a layer, or a chart of one layer, that draws the encoding with a mark of these properties."""
    return {"mark": {"type": mark, **properties}, "encoding": encoding}

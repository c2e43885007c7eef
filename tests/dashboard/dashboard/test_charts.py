"""Charts reach the browser whole, without the time that altair takes."""

import json
import subprocess
import sys

import polars as pl
from streamlit.testing.v1 import AppTest

DRAW = """
from datetime import UTC, datetime

import polars as pl

from spanloop.dashboard.components import charts

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def error_rates():
    points = pl.DataFrame(
        {"bucket": [MOMENT] * 3, "at": [MOMENT] * 3, "value": ["policy"] * 3, "failures": [1] * 3, "episodes": [2] * 3}
    ).with_columns(rate=pl.Series([0.5, float("nan"), float("inf")]), href=pl.lit("episodes"))
    marks = pl.DataFrame({"at": [MOMENT], "version": ["demo@v2"], "event": ["promoted"], "label": ["demo@v2"]})
    charts.draw(charts.error_rates(points, marks, ["policy"], "UTC"))


error_rates()
"""


def test_points_and_deployments_are_two_data_sets() -> None:
    app = AppTest.from_string(DRAW).run()
    assert not app.exception
    proto = app.get("vega_lite_chart")[0].proto
    spec = json.loads(proto.spec)
    rows = {each.name: pl.read_ipc_stream(each.data.data) for each in proto.datasets}
    assert {name: len(frame) for name, frame in rows.items()} == {"rows": 3, "deployments": 1}
    assert [layer.get("data", spec["data"])["name"] for layer in spec["layer"]] == ["deployments"] * 2 + ["rows"] * 2


def test_drawing_imports_no_altair() -> None:
    check = "import sys; sys.exit('altair' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", f"{DRAW}\n{check}"], check=False, capture_output=True).returncode == 0

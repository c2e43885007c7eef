"""The tables of the scaling page are those that the benchmark makes from its stored figures."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``benchmarks/scaling/machines.py``."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("scaling.machines")


def test_the_page_has_the_tables_of_the_benchmark(machines: Any) -> None:
    text = (ROOT / "docs" / "explanation" / "scaling.md").read_text("utf-8")
    between = text.partition(machines.BEGIN)[2].partition(machines.END)[0]
    assert between.strip() == machines.tables(machines.Results.load())


def test_machines_and_price_follow_the_spans(machines: Any) -> None:
    """Ten times the spans need ten times the busy cores, and no layout uses more of a core than it may."""
    results = machines.Results.load()
    small, large = (machines.layout(results, spans, machines.PRICES, copies=2) for spans in (10**8, 10**9))
    for before, after in zip(small, large, strict=True):
        assert before.part == after.part
        assert before.machines >= 2
        assert after.price(machines.PRICES) >= before.price(machines.PRICES)
        assert after.busy_cores <= machines.UTILISATION * after.machines * after.cores
    by_part = {each.part: (each, after) for each, after in zip(small, large, strict=True)}
    before, after = by_part["collector"]
    assert after.busy_cores == pytest.approx(10 * before.busy_cores)


def test_the_disk_of_the_spans_is_their_stored_bytes(machines: Any) -> None:
    """A thousand bytes a span for thirty days, on disks that are 70 % full."""
    results = replace(machines.Results.load(), stored_bytes={"spans": 600_000_000, "derived": 400_000_000})
    layout = machines.layout(results, 10**9, machines.PRICES, copies=1)
    (server,) = (each for each in layout if each.part == "ClickHouse")
    assert server.machines * server.disk_gib == pytest.approx(10**9 * 30 * 1_000 / 0.7 / 2**30, rel=0.001)


def test_limits_begin_with_the_part_that_is_full_first(machines: Any) -> None:
    results = machines.Results.load()
    spans_a_day = [limit.spans_a_day for limit in machines.limits(results, machines.PRICES)]
    assert spans_a_day == sorted(spans_a_day)
    usage = {**results.parts["collector"], "cpu_s": 10**6}
    slow = replace(results, parts={**results.parts, "collector": usage})
    assert machines.limits(slow, machines.PRICES)[0].name == "collector, one core"

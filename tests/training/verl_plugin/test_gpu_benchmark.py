"""The GPU benchmark's rehearsal: its measurements on a tiny model and a CPU, and the report of them."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def benchmark_modules(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """``gpu`` and ``gpu_report``."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("gpu"), importlib.import_module("gpu_report")


@pytest.mark.filterwarnings("ignore")
def test_a_rehearsal_measures_and_reports_every_part(benchmark_modules: tuple[Any, Any], tmp_path: Path) -> None:
    gpu, report = benchmark_modules
    gpu.main(["--rehearse", "--folder", str(tmp_path)])
    figures = json.loads((tmp_path / "results.json").read_text())
    recipes, tiny = figures["parts"]["recipes"]["cases"], figures["parts"]["tiny"]
    assert recipes.keys() == set(gpu.REHEARSED)
    assert all(case["agrees"] for case in recipes.values()), recipes
    alone = tiny["alone"]
    assert alone["tree"]["tokens"] < alone["merged"]["tokens"] < alone["turns"]["tokens"]
    # the model's own numbers are bfloat16
    assert max(alone[name]["gradient_difference"] for name in ("tree", "turns")) < 2e-2
    assert tiny["tree"]["steps"] == 2
    assert not tiny["tree"]["problem"]
    lines = "\n".join(report.card_lines(figures))
    assert "| dr_grpo |" in lines
    assert "| merged |" in lines


def test_measured_parts_are_not_measured_again(benchmark_modules: tuple[Any, Any], tmp_path: Path) -> None:
    gpu, _ = benchmark_modules
    path = tmp_path / "results.json"
    gpu.Results(path, 100.0).measure("0.5b", "tree", lambda: {"step_s": 1.0})
    again = gpu.Results(path, 100.0)
    again.measure("0.5b", "tree", lambda: {"step_s": 2.0})
    again.measure("0.5b", "stock", lambda: {"problem": "out of memory"})
    again.measure("0.5b", "stock", lambda: {"step_s": 3.0})
    gpu.Results(path, 0.0).measure("0.5b", "late", lambda: {"step_s": 4.0})
    assert json.loads(path.read_text())["parts"]["0.5b"] == {"tree": {"step_s": 1.0}, "stock": {"step_s": 3.0}}

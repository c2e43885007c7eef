"""The table of ``benchmarks/examples.py``: gains are pooled over seeds, and only one above zero is learning."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

EXAMPLES = Path(__file__).parents[2] / "benchmarks" / "examples.py"


@pytest.fixture(scope="module")
def examples() -> Any:
    """``benchmarks/examples.py``; its own name is that of the folder ``examples``."""
    spec = importlib.util.spec_from_file_location("examples_benchmark", EXAMPLES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_results(folder: Path, name: str, seeds: list[tuple[list[float], list[float]]]) -> None:
    """Write the result of each seed: success of base and trained version, by task."""
    for seed, (base, trained) in enumerate(seeds):
        tasks = [f"t{number}" for number in range(len(base))]
        result = {
            "difficulty": dict.fromkeys(tasks, "easy"),
            "base": dict(zip(tasks, base, strict=True)),
            "trained": dict(zip(tasks, trained, strict=True)),
            "seconds": 60.0,
            "date": "2026-11-27",
        }
        (folder / f"{name}-seed-{seed}.json").write_text(json.dumps(result))


def table(
    examples: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["examples.py", *arguments])
    examples.main()
    return capsys.readouterr().out.splitlines()


def test_gains_are_pooled_and_an_interval_at_zero_is_not_learned(
    examples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path, "lake", [([0.0] * 20, [1.0] * 15 + [0.0] * 5), ([0.0] * 20, [1.0] * 5 + [0.0] * 15)])
    write_results(tmp_path, "apps", [([0.0, 1.0] * 10, [1.0, 0.0] * 10)])
    monkeypatch.setattr(examples, "run_seed", Mock(side_effect=AssertionError("a seed with a result ran again")))
    rows = table(examples, monkeypatch, capsys, "lake", "apps", "math", "--results", str(tmp_path), "--table")
    lake, _, apps, _, maths = rows[2:7]
    assert lake.startswith("| lake | 20, 20 | 0%, 0% | 75%, 25% | +50.0 [+")  # 20 of 40 tasks
    assert lake.endswith("| learned | 1.0, 1.0 |")
    assert apps.startswith("| apps | 20 | 50% | 50% | +0.0 [-")
    assert "| not learned |" in apps
    assert maths == "| math | | | | | not measured | |"
    assert rows[-1] == "ratio lake=+50.0 apps=+0.0 math=-"


def test_only_seeds_without_a_result_run_and_their_results_are_written(
    examples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    write_results(results, "lake", [([0.0], [1.0])])
    measured = examples.Result({"t0": "easy"}, {"t0": 0.0}, {"t0": 0.0}, 120.0, "2026-11-27")
    run_seed = Mock(return_value=measured)
    monkeypatch.setattr(examples, "run_seed", run_seed)
    arguments = ("lake", "--seeds", "2", "--folder", str(tmp_path), "--results", str(results))
    rows = table(examples, monkeypatch, capsys, *arguments)
    run_seed.assert_called_once_with("lake", tmp_path / "lake" / "seed-1", 1, None)
    assert rows[2].startswith("| lake | 1, 1 | 0%, 0% | 100%, 0% | +50.0 [")
    assert table(examples, monkeypatch, capsys, *arguments, "--table")[2] == rows[2]

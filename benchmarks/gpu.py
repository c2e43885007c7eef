"""Training on a GPU: recipes against a CPU's figures; prefix trees against merged rows and one row for each turn.

    python benchmarks/gpu.py [recipes] [1.5b] [0.5b] [7b] [--folder FOLDER] [--seconds 480]
    python benchmarks/gpu.py --record --folder FOLDER     # on a CPU: the figures that recipes must have
    python benchmarks/gpu.py --rehearse                   # everything on a tiny model and a CPU

``FOLDER`` has ``rows.parquet`` (``gpu_rows.py``), the tiny model with its figures on a CPU (``--record``), and takes
``results.json`` and the jobs' files. A part whose figures are in ``results.json`` is not measured again, so a run that
was interrupted goes on. ``gpu_report.py`` takes them into docs/benchmarks.md.

The models have Qwen2.5's shapes and random weights; a step is four tasks with four attempts each. Of each size are
measured: the model alone (forward and backward of a tree, of merged rows, of one row for each turn, and of many
attempts at one task; and with all activations recomputed), the job with trees, its checkpoints, and the job with verl's
stock engine on the same merged rows.
"""

import argparse
import json
import math
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch
from gpu_training import recipes
from gpu_training.models import SIZES, Size, make_model, write_model
from gpu_training.passes import Passes, compare_layouts
from gpu_training.rows import ONE_TASK, draw_rows, merged_rows, read_rows, take_tasks, turn_rows
from gpu_training.training import (
    GROUPS,
    Setup,
    compare_engines,
    measure_checkpoints,
    measure_limited,
    measure_stock,
    measure_tree,
)

from spanloop.training.spec.choices import Device

PARTS: Final = ("recipes", "1.5b", "0.5b", "7b")
DEFAULT_PARTS: Final = PARTS[:3]
PASS_TOKENS: Final = 32_768
REHEARSED: Final = ("dr_grpo", "dpo")
"""Recipes of a rehearsal."""
_SECONDS: Final = 480.0
_RECIPES_S: Final = 150.0
"""At most for the recipes; the other parts need most of the time."""
_MINIMUM_S: Final = 30.0
"""No measurement begins with less time left."""


class Results:
    """Figures by part and name, in a JSON file that is complete after each measurement.

    Args:
        path: The file; figures in it are kept.
        seconds: Time for all measurements.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self._until = time.monotonic() + seconds
        self.figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"parts": {}}

    def seconds_left(self) -> float:
        """Return the remaining time."""
        return self._until - time.monotonic()

    def part(self, name: str) -> dict[str, Any]:
        """Return the figures of a part."""
        part: dict[str, Any] = self.figures["parts"].setdefault(name, {})
        return part

    def measure(self, part: str, name: str, measure: Callable[[], Any]) -> None:
        """Measure what is not there yet; a failure is recorded as ``problem`` and measured again by the next run."""
        known = self.part(part).get(name)
        if known is not None and not known.get("problem"):
            return
        if self.seconds_left() < _MINIMUM_S:
            print(f"{part} {name}: no time left", flush=True)
            return
        started_s = time.monotonic()
        try:
            figures = measure()
        except Exception as error:  # noqa: BLE001 - the other measurements go on
            figures = {"problem": f"{type(error).__name__}: {error}"[:2000]}
        self.part(part)[name] = figures
        self._path.write_text(json.dumps(self.figures, indent=1))
        print(f"{part} {name} ({time.monotonic() - started_s:.0f} s): {json.dumps(figures)[:1500]}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Measure the parts of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=f"default: {' '.join(DEFAULT_PARTS)}")
    parser.add_argument("--folder", type=Path, help="rows, expected figures and results; a temporary one otherwise")
    parser.add_argument("--results", type=Path, help="results.json of the folder otherwise")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="no measurement begins later")
    parser.add_argument("--record", action="store_true", help="write the figures of the recipes on this CPU")
    parser.add_argument("--rehearse", action="store_true", help="a tiny model, on a CPU")
    options = parser.parse_args(arguments)
    if options.folder:
        _run(options, options.folder)
        return
    with tempfile.TemporaryDirectory(prefix="gpu-", dir="/tmp") as folder:
        _run(options, Path(folder))


def _run(options: argparse.Namespace, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if options.record or options.rehearse:
        recipes.record(folder, REHEARSED if options.rehearse else ())
    if options.record:
        return
    if not options.rehearse and not torch.cuda.is_available():
        raise SystemExit("torch sees no CUDA device; --rehearse runs on a CPU")
    device = torch.device("cpu" if options.rehearse else "cuda")
    seconds = math.inf if options.rehearse else options.seconds
    results = Results(options.results or folder / "results.json", seconds)
    results.figures |= describe_machine(device)
    if options.rehearse:
        rehearse(results, folder)
    for part in () if options.rehearse else options.parts or DEFAULT_PARTS:
        if part == "recipes":
            measure_recipes(results, folder)
        else:
            measure_size(results, part, folder, device)


def measure_recipes(results: Results, folder: Path) -> None:
    """Compare all recipes with their figures on a CPU."""
    limit_s = min(_RECIPES_S, results.seconds_left())
    results.measure("recipes", "cases", lambda: recipes.compare(folder, folder / "jobs", Device.CUDA, seconds=limit_s))


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return the card, the date and the versions that figures depend on."""
    is_cuda = device.type == "cuda"
    return {
        "card": torch.cuda.get_device_name(device) if is_cuda else f"no GPU ({platform.machine()})",
        "memory_gb": torch.cuda.get_device_properties(device).total_memory / 1e9 if is_cuda else 0.0,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("torch", "transformers", "verl", "ray")},
    }


def measure_size(results: Results, part: str, folder: Path, device: torch.device) -> None:
    """Measure one size of model: its jobs, then the model alone."""
    size = SIZES[part]
    rows = read_rows(folder / "rows.parquet")
    model = folder / "models" / part
    model.parent.mkdir(exist_ok=True)
    write_model(size, model, device)
    setup = Setup(size, model, rows, folder / "jobs" / part, PASS_TOKENS, Device.CUDA, results.seconds_left)
    results.measure(part, "tree", lambda: measure_tree(setup))
    if part == "1.5b":
        results.measure(part, "stock", lambda: measure_stock(setup))
        if results.part(part).keys() >= {"tree", "stock"}:
            results.measure(part, "faster", lambda: compare_engines(results.part(part)))
    measure_alone(results, part, size, folder, device)
    if part == "1.5b":
        results.measure(part, "limited", lambda: measure_limited(setup))
        results.measure(part, "checkpoints", lambda: measure_checkpoints(setup))


def measure_alone(results: Results, part: str, size: Size, folder: Path, device: torch.device) -> None:
    """Measure forward and backward of a model alone, then free its memory."""
    names = ("alone", "one_task", "recomputed", "one_task_recomputed")
    if all(name in results.part(part) for name in names) or size.lora_rank:
        return
    measured = Passes(make_model(size, device), size, PASS_TOKENS)
    tasks = merged_rows(take_tasks(read_rows(folder / "rows.parquet"), GROUPS))
    turns = turn_rows(tasks) if part == "1.5b" else None
    one_task = merged_rows(read_rows(folder / "rows.parquet", ONE_TASK))
    results.measure(part, "alone", lambda: compare_layouts(measured, tasks, turns, repetitions=3))
    results.measure(part, "one_task", lambda: compare_layouts(measured, one_task, None, repetitions=3))
    measured.kept.recompute_all()
    results.measure(part, "recomputed", lambda: compare_layouts(measured, tasks, turns, repetitions=3))
    results.measure(part, "one_task_recomputed", lambda: compare_layouts(measured, one_task, None, repetitions=3))
    measured.free()


def rehearse(results: Results, folder: Path) -> None:
    """Run every measurement on a tiny model and a CPU; the figures mean nothing."""
    part, size, device = "tiny", SIZES["tiny"], torch.device("cpu")
    rows = draw_rows(tasks=GROUPS, attempts=2, vocabulary=size.vocabulary)
    work = folder / "jobs"
    results.measure("recipes", "cases", lambda: recipes.compare(folder, work / "again", Device.CPU, seconds=600))
    write_model(size, folder / "model-tiny", device)
    measured = Passes(make_model(size, device), size, 1024)
    merged = merged_rows(rows)
    results.measure(part, "alone", lambda: compare_layouts(measured, merged, turn_rows(merged), repetitions=1))
    setup = Setup(size, folder / "model-tiny", rows, work / part, 1024, Device.CPU, results.seconds_left)
    results.measure(part, "tree", lambda: measure_tree(setup, steps=2))


if __name__ == "__main__":
    main()

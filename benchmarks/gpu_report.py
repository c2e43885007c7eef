"""The section of docs/benchmarks.md about training on a GPU, from the figures of ``gpu.py``.

    python benchmarks/gpu_report.py results.json && python docs/generate.py

copies the figures to ``benchmarks/gpu_results/``, one file for each card; the section is generated from all of them.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeGuard

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "gpu_results"
_INTRODUCTION: Final = """## Training on a GPU

`python benchmarks/gpu.py`: models of Qwen2.5's shapes with random weights, bfloat16; rows of a real airline agent
(tau-bench), four tasks with four attempts each in a step. `tree` computes each common prefix once; `merged` has one row
for each attempt and nothing shared; `turns` one row for each turn. MFU counts 6 operations for each parameter and
computed token, attention's visible pairs, and the output head where the loss needs it. The utilisation of the
hardware (HFU) counts matrix products that the backward pass computes again, too. verl's own figure counts the tokens of
all rows.
"""


_TITLES: Final = {
    "alone": "",
    "recomputed": "all layers recomputed, ",
    "one_task": "16 attempts at one task, ",
    "one_task_recomputed": "16 attempts at one task, all layers recomputed, ",
}
"""Of the measurements of a model alone."""


def main() -> None:
    """Copy results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="+", type=Path)
    RESULTS.mkdir(exist_ok=True)
    for path in parser.parse_args().results:
        shutil.copy(path, RESULTS / f"{_file_name(json.loads(path.read_text())['card'])}.json")


def section() -> str:
    """Return the section, from all files of results."""
    files = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    cards = ["\n".join(card_lines(figures)) for figures in files]
    return "\n".join([_INTRODUCTION, *(cards or ["No GPU was at hand yet; there are no figures.\n"])])


def card_lines(figures: dict[str, Any]) -> Iterator[str]:
    """Return the lines about one card."""
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    yield f"### {figures['card']}\n"
    yield f"{figures['memory_gb']:.0f} GB, {figures['date']}; {versions}.\n"
    for note in figures.get("notes", ()):
        yield f"{note}\n"
    for part, measured in figures["parts"].items():
        if part == "recipes":
            yield from recipe_lines(measured)
        else:
            yield from size_lines(part, measured)


def recipe_lines(measured: dict[str, Any]) -> Iterator[str]:
    """Return how the recipes compare with their figures on a CPU."""
    cases = measured.get("cases", {})
    if "problem" in cases:
        return
    yield "Recipes on the tiny model: the last step in bfloat16 on this card, and in float32 on a CPU.\n"
    yield "| recipe | this card | CPU | |"
    yield "|---|---|---|---|"
    for name, case in cases.items():
        both = [_short(steps[-1]) if steps else "-" for steps in (case["steps"], case["expected"])]
        verdict = "agrees" if case["agrees"] else "differs"
        yield f"| {name} | {both[0]} | {both[1]} | {', '.join(filter(None, (verdict, case.get('note'))))} |"
    yield ""


def size_lines(part: str, measured: dict[str, Any]) -> Iterator[str]:
    """Return the figures of one size of model."""
    alone = {name: measured[name] for name in _TITLES if _is_measured(measured.get(name))}
    if alone:
        yield f"Model of {part.upper()} parameters alone, forward and backward:\n"
        yield _row(
            "rows",
            "computed tokens",
            "s",
            "tokens/s",
            "MFU (HFU)",
            "peak",
            "slower than the tree",
            "tokens by the tree's",
            "gradient by `merged`",
        )
        yield _row(*["---"] * 9)
        for name, layouts in alone.items():
            yield from _layout_lines(_TITLES[name], layouts)
        yield ""
    jobs = list(_jobs(measured))
    if jobs:
        yield f"Job of `dr_grpo` with {part.upper()} parameters:\n"
        yield _row(
            "engine",
            "tokens a pass",
            "longest row",
            "step",
            "update",
            "`old_log_prob`",
            "row tokens/s",
            "MFU (HFU) of the update",
            "verl's MFU",
            "peak",
            "compiled after step 3",
        )
        yield _row(*["---"] * 11)
        yield from (_job_row(name, job) for name, job in jobs)
        yield ""
    faster = measured.get("faster")
    if _is_measured(faster):
        yield (
            f"A step takes verl's stock engine {faster['step']:.1f} times as long as trees on the same rows, "
            f"{faster['step_without_old_log_prob']:.1f} times without its `old_log_prob`.\n"
        )
    saved = measured.get("checkpoints")
    if _is_measured(saved):
        saves = ", ".join(f"{seconds:.1f}" for seconds in saved["save_s"] if seconds)
        steps = ", ".join(f"{seconds:.1f}" for seconds in saved["step_s"])
        yield f"Checkpoints of the {part.upper()} job take {saves} s of a step; its steps took {steps} s.\n"


def _layout_lines(title: str, layouts: dict[str, Any]) -> Iterator[str]:
    for name in ("tree", "merged", "turns"):
        if name not in layouts:
            continue
        layout = layouts[name]
        ratio = f"{layouts[f'{name}_by_tree']:.2f}" if name != "tree" else ""
        tokens = f"{layouts[f'{name}_by_tree_tokens']:.2f}" if name != "tree" else ""
        difference = f"{layout['gradient_difference']:.1e}" if "gradient_difference" in layout else ""
        yield _row(
            f"{title}{name}",
            f"{layout['tokens']:,}",
            f"{layout['seconds']:.2f}",
            f"{layout['tokens'] / layout['seconds']:,.0f}",
            f"{layout['mfu']:.2f} ({layout['hfu']:.2f})",
            f"{layout['peak_gb']:.1f} GB",
            ratio,
            tokens,
            difference,
        )


def _jobs(measured: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("tree", "limited", "stock"):
        job = measured.get(name)
        if _is_measured(job) and job["step_s"]:
            yield name, job
            if "tree" in job:
                yield "tree, the rows of stock", job["tree"]


def _job_row(name: str, job: dict[str, Any]) -> str:
    return _row(
        name,
        f"{job['pass_tokens']:,}",
        f"{job['longest_row']:,}",
        f"{job['step_s']:.2f} s",
        f"{job['update_s']:.2f} s",
        f"{job['old_log_prob_s']:.2f} s",
        f"{job['tokens_per_s']:,.0f}",
        f"{job['mfu_update']:.2f} ({job['hfu_update']:.2f})",
        f"{job['mfu_verl']:.2f}",
        f"{job['gpu_gb']:.0f} GB",
        str(job["late_compilations"]),
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _is_measured(figures: Any) -> TypeGuard[dict[str, Any]]:
    return bool(figures) and not figures.get("problem")


def _short(step: dict[str, float]) -> str:
    return ", ".join(f"{name.partition('/')[2]} {value:.4g}" for name, value in sorted(step.items()))


def _file_name(card: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in card.lower()).strip("-")


if __name__ == "__main__":
    main()

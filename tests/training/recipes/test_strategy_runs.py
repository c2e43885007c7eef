"""Data strategies from the command line to a version, and to the next job on it."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from spanloop.cli import app as command_tree
from spanloop.store import Store
from spanloop.training.dataset.manifest import DATA_NAME, Manifest, load_manifest
from spanloop.training.jobs.paths import ControlPaths

from ..training_running import Runner
from ..training_seeding import seed_groups


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_learns_from_the_hardest_groups_and_the_next_one_from_the_others(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)

    def train(*options: str) -> tuple[Manifest, pl.DataFrame, list[dict[str, Any]]]:
        arguments = ["train", "tiny", "--steps", "2", "--batch-groups", "1", "--backbone", "debug", *options]
        submitted = CliRunner().invoke(command_tree.app, [*arguments, "--data-dir", str(runner.data_dir.path)])
        assert submitted.exit_code == 0, submitted.output
        job_id = submitted.stdout.strip()
        process, _ = runner.start(job_id, tmp_path / "log.txt")
        assert process.wait(timeout=280) == 0, (tmp_path / "log.txt").read_text()
        folder = ControlPaths.of(runner.data_dir).job(job_id)
        manifest = load_manifest(folder)
        assert manifest is not None
        lines = [json.loads(line) for line in (folder / "samples-1.jsonl").read_text().splitlines()]
        return manifest, pl.read_parquet(folder / DATA_NAME), lines

    hardest = ("--coreset", "loss", "--coreset-size", "2", "--curriculum", "hard_to_easy", "--max-pass-rate", "0.9")
    first, rows, lines = train(*hardest)
    assert [(report.strategy, report.kept) for report in first.strategies] == [("curriculum", 4), ("coreset", 2)]
    assert first.groups.rejected["not_in_coreset"] == 2
    in_order = [rows["group_id"][line["sample"]].unique().to_list() for line in lines]
    assert in_order == [[group] for group in rows["group_id"].unique(maintain_order=True)]
    samples = store.query("training_samples", job_id=first.job_id)
    assert samples["base_loss"].is_not_null().all()
    assert samples["pass_rate"].is_between(0, 0.9).all()

    second, others, _ = train("--replay-ratio", "0")
    assert second.base == "tiny@v2"
    assert [(report.strategy, report.kept, report.available) for report in second.strategies] == [("replay", 2, 4)]
    assert set(others["episode_id"]).isdisjoint(rows["episode_id"])

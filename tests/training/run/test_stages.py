"""Stages of a job: their settings, what is held out between them, and the gate."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from spanloop.cli import app as command_tree
from spanloop.dashboard.view_models.jobs import stage_rows
from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.dataset.held_out import HELD_OUT_NAME, hold_out
from spanloop.training.dataset.manifest import DATA_NAME, load_manifest
from spanloop.training.dataset.selection import Selection
from spanloop.training.dataset.tally import Tally
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.training_ids import job_of, training_id
from spanloop.training.models.registry import Registry
from spanloop.training.recipes.registry import find_recipe
from spanloop.training.run.gate import judge
from spanloop.training.run.gate_result import GATE_NAME, read_gate
from spanloop.training.run.job_api import Job, JobApi
from spanloop.training.run.stage_progress import stage_progress
from spanloop.training.spec.job_file import build_spec, read_job_file
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.spec.stage_text import format_stage, parse_stage
from spanloop.training.spec.stages import stages_of

from ..recipe_kinds import flat_value
from ..training_running import Runner
from ..training_seeding import seed_groups

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), TEXTS), st.lists(TEXTS, min_size=1, max_size=3))
def test_the_text_of_a_stage_is_read_back(settings: dict[str, str], items: list[str]) -> None:
    given: dict[str, Any] = settings | {"list": items}
    assert parse_stage(format_stage(given), frozenset({"list"})) == given


def test_a_stage_has_the_jobs_settings_except_those_that_depend_on_the_kind() -> None:
    spec = JobSpec.of(
        kind="sft", base="m", name="better", steps=7, learning_rate=1e-3, min_reward=0.5, max_age_days=3,
        lora_rank=4, deploy=True, then=("kind=dpo batch_groups=2", "kind=dr_grpo kl_budget=none task_ids=a task_ids=b"),
    )  # fmt: skip
    sft, dpo, gradient = (stage.spec for stage in stages_of(spec))
    assert (sft.kind, sft.steps, sft.optimiser.learning_rate, sft.stages) == ("sft", 7, 1e-3, ())
    assert (dpo.kind, dpo.steps, dpo.optimiser.batch_groups) == ("dpo", 7, 2)
    assert dpo.optimiser.learning_rate == pytest.approx(5e-6)
    assert (dpo.episodes.max_age_days, dpo.run.deploy) == (3, False)
    assert (gradient.kind, flat_value(gradient, "kl_budget")) == ("dr_grpo", None)
    assert (gradient.episodes.task_ids, gradient.episodes.max_age_versions) == (("a", "b"), 8)
    assert [stage.held_out_share for stage in stages_of(spec)] == [0.1, 0.1, 0]
    assert {stage.spec.result_name for stage in stages_of(spec)} == {"better"}
    assert [stage.held_out_share for stage in stages_of(JobSpec.of(base="m"))] == [0]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"then": ["dpo"]}, "expected SETTING=VALUE"),
        ({"then": ["kind=dpo base=other"]}, "stage 2: base is a setting of the whole job"),
        ({"then": ["kind=dpo", "stepz=1"]}, "stage 3: stepz is no setting"),
        ({"then": ["kind=dpo steps=0"]}, "stage 2: steps: .* greater than or equal to 1"),
        ({"then": ["kind=sft credit=attributed"]}, "stage 2: credit: a .* setting that sft does not use"),
        ({"held_out_share": 0.3}, "held_out_share: a setting of a job with stages"),
    ],
)
def test_a_wrong_stage_is_named(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        JobSpec.model_validate({"base": "m", **settings})


def test_a_job_file_has_stages_as_tables_or_texts(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('base = "m"\nkind = "sft"\n[[then]]\nkind = "dpo"\nsteps = 2\ndpo_beta = 0.2\n')
    spec = build_spec(read_job_file(file), where=str(file))
    assert spec == JobSpec.of(base="m", kind="sft", then=("kind=dpo steps=2 dpo_beta=0.2",))
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_training_names_its_job() -> None:
    assert [training_id("j", stage) for stage in (1, 2)] == ["j", "j.2"]
    assert {job_of(training_id("j", stage)) for stage in (1, 2, 11)} == {"j"}


def selection(groups: list[str]) -> Selection:
    rows = pl.DataFrame(
        [(f"t{number}", f"e{number}", group) for number, group in enumerate(groups)],
        schema=["trajectory_id", "episode_id", "group_id"],
        orient="row",
    )
    return Selection(rows, Tally(len(groups), {"x": 1}), Tally(len(groups), {}), Tally(len(set(groups)), {}), None, ())


@given(st.lists(st.sampled_from(["", "g#1", "g#2", "h", "i"]), min_size=1, max_size=30), st.floats(0.01, 0.5))
def test_whole_groups_are_held_out_and_counted(groups: list[str], share: float) -> None:
    whole = selection(groups)
    tasks = whole.rows.select(
        pl.when(pl.col("group_id") == "").then("episode_id").otherwise(pl.col("group_id").str.slice(0, 1))
    ).to_series()
    if tasks.n_unique() == 1:
        with pytest.raises(JobError, match="none can be held out"):
            hold_out(whole, find_recipe("grpo")(), share=share, seed=1)
        return
    parts = hold_out(whole, find_recipe("grpo")(), share=share, seed=1)
    assert parts.held_out is not None
    assert pl.concat([parts.rows, parts.held_out]).sort("trajectory_id").equals(whole.rows.sort("trajectory_id"))
    assert parts.rows.height
    assert parts.held_out.height
    names = [set(frame["group_id"].str.slice(0, 1)) - {""} for frame in (parts.rows, parts.held_out)]
    assert not names[0] & names[1]
    assert parts.row_tally.total == whole.row_tally.total
    assert parts.row_tally.rejected["held_out"] == parts.held_out.height
    assert hold_out(whole, find_recipe("grpo")(), share=0, seed=1) is whole


def scored(after: list[float], **columns: list[Any]) -> pl.DataFrame:
    size = len(after)
    return pl.DataFrame(
        {"before": [-2.0] * size, "after": after, "tokens": [2] * size, "reward": [1.0] * size,
         "group_id": ["g"] * size, "pair_id": [""] * size, "side": [""] * size} | columns
    )  # fmt: skip


def test_the_gate_of_sft_wants_held_out_rows_as_likely_as_before() -> None:
    better, worse = judge(find_recipe("sft")(), scored([-1, -2])), judge(find_recipe("sft")(), scored([-3, -2]))
    assert (better.got, better.expected, better.passed) == (0.75, 1, True)
    assert (worse.got, worse.passed) == (1.25, False)
    assert "held_out_nll failed: got 1.2500, expected at most 1.0000 (2 rows)" in str(worse)
    assert not judge(find_recipe("sft")(), scored([float("nan"), -1])).passed


def test_the_gate_of_a_policy_gradient_looks_at_the_better_rows_of_each_group() -> None:
    frame = scored([-1, -9, -9, -1], reward=[1, 0, 3, 5], group_id=["a", "a", "b", "b"])
    assert judge(find_recipe("grpo")(), frame).passed
    assert judge(find_recipe("grpo")(), frame).rows == 2
    assert not judge(find_recipe("ppo")(), frame).passed
    with pytest.raises(JobError, match="nothing to measure"):
        judge(find_recipe("grpo")(), scored([-1, -1]))


def test_the_gate_of_dpo_wants_half_of_the_held_out_pairs_in_order() -> None:
    pairs = {"pair_id": ["p", "p", "q", "q"], "side": ["chosen", "rejected"] * 2}
    assert judge(find_recipe("dpo")(), scored([-1, -2, -3, -2], **pairs)).got == 0.5
    assert judge(find_recipe("dpo")(), scored([-1, -2, -3, -2], **pairs)).passed
    assert not judge(find_recipe("dpo")(), scored([-2, -2, -3, -2], **pairs)).passed
    assert not judge(find_recipe("dpo")(), scored([float("nan"), -2, -1, -2], **pairs)).passed


STAGES = ["--kind", "sft", "--steps", "3", "--backbone", "debug", "--held-out-share", "0.3"]
TABLES = """base = "tiny"
kind = "sft"
steps = 3
backbone = "debug"
held_out_share = 0.3
learning_rate = 1e-3

[[then]]
kind = "dpo"
learning_rate = 1e-3
steps = 2
"""


def train(runner: Runner, log_path: Path, *arguments: str) -> tuple[Job, int, str]:
    """Submit by the command line and run: the job afterwards, its exit status and its log."""
    completed = CliRunner().invoke(command_tree.app, ["train", *arguments, "--data-dir", str(runner.data_dir.path)])
    assert completed.exit_code == 0, completed.output
    job_id = completed.stdout.strip()
    process, _ = runner.start(job_id, log_path)
    status = process.wait(timeout=280)
    return JobApi(runner.data_dir).get(job_id), status, log_path.read_text(errors="replace")


def test_a_job_says_how_far_each_stage_is(data_dir: DataDir, tiny_model: Path) -> None:
    registry, api = Registry(data_dir), JobApi(data_dir)
    registry.add("tiny", tiny_model)
    job = api.submit(JobSpec.of(base="tiny", kind="sft", then=("kind=dpo", "kind=dr_grpo")))
    titles = ["stage 1 of 3 (sft)", "stage 2 of 3 (dpo)", "stage 3 of 3 (dr_grpo)"]
    assert stage_rows(stage_progress(data_dir, registry, job)) == dict.fromkeys(titles, "waiting")
    first, second = (registry.add("tiny", tiny_model, job_id=job.id, stage=stage) for stage in (1, 2))
    assert registry.add("tiny", tiny_model, job_id=job.id, stage=2) == second
    assert (first.job_id, second.job_id, second.training_id) == (job.id, job.id, f"{job.id}.2")
    assert api.get(job.id).model_version == second.reference
    folder = ControlPaths.of(data_dir).job(job.id)
    folder.mkdir(parents=True)
    gate = judge(find_recipe("sft")(), scored([-1, -2]))
    (folder / GATE_NAME).write_text(gate.model_dump_json())
    api.cancel(job.id)
    assert stage_rows(stage_progress(data_dir, registry, api.get(job.id))) == dict(
        zip(titles, [f"done · tiny@v2 · gate: {gate}", "done · tiny@v3", "not begun"], strict=True)
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_trains_its_stages_one_after_the_other(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    (tmp_path / "job.toml").write_text(TABLES)
    job, status, log = train(runner, tmp_path / "log.txt", str(tmp_path / "job.toml"))
    assert status == 0, log
    registry = Registry(runner.data_dir)
    last = registry.get(job.model_version)
    assert [version.reference for version in registry.lineage("tiny")] == ["tiny@v1", "tiny@v2", "tiny@v3"]
    assert [version.metadata.get("kind") for version in registry.lineage("tiny")] == [None, "sft", "dpo"]
    assert (last.reference, last.job_id, last.training_id) == ("tiny@v3", job.id, f"{job.id}.2")
    assert (job.step, job.steps_total) == (5, 5)
    first, second = (ControlPaths.of(runner.data_dir).job(training_id(job.id, stage)) for stage in (1, 2))
    manifests = [load_manifest(folder) for folder in (first, second)]
    assert [manifest and manifest.base for manifest in manifests] == ["tiny@v1", "tiny@v2"]
    trained, held_out = pl.read_parquet(first / DATA_NAME), pl.read_parquet(first / HELD_OUT_NAME)
    assert not set(trained["group_id"]) & set(held_out["group_id"])
    gate = read_gate(first)
    assert gate is not None
    assert gate.passed
    assert read_gate(second) is None
    metrics = store.query("training_metrics", job_id=job.id)
    assert metrics.filter(pl.col("name") == "gate/held_out_nll")["value"].item() == pytest.approx(gate.got)
    assert not list(first.glob("checkpoints"))
    # another attempt has nothing left to train
    runner.fail(job.id)
    JobApi(runner.data_dir).retry(job.id)
    process, _ = runner.start(job.id, tmp_path / "again.txt")
    assert process.wait(timeout=280) == 0
    assert len(registry.list("tiny")) == 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_gate_that_fails_ends_the_job_with_the_last_good_version(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    options = ["--learning-rate", "1", "--then", "kind=dpo learning_rate=1e-3 steps=2"]
    job, status, log = train(runner, tmp_path / "log.txt", "tiny", *STAGES, *options)
    assert status == 1
    assert f"Job {job.id}: the gate after stage 1 of 2 (sft) ended it: held_out_nll failed: got" in log
    assert "The last good version is tiny@v1" in log
    assert [version.reference for version in Registry(runner.data_dir).list("tiny")] == ["tiny@v1"]

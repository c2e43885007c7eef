"""Flat settings become a specification in parts: job files, and what versions without parts stored.

Each input in ``flat_settings/`` was written by the last version whose specification was flat.
"""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.spec.fields import problems
from spanloop.training.spec.flat_settings import flat_settings, split_settings
from spanloop.training.spec.job_file import build_spec, read_job_file
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.spec.stored_spec import parse_spec

from ..recipe_kinds import KINDS

FOLDER = Path(__file__).with_name("flat_settings")


def in_parts(name: str) -> JobSpec:
    """The expected specification; settings that came later have their defaults."""
    return JobSpec.model_validate(json.loads((FOLDER / f"{name}.parts.json").read_text()))


def test_a_flat_job_file_becomes_parts() -> None:
    spec = build_spec(read_job_file(FOLDER / "job_file.toml"), where="job_file.toml")
    assert spec == in_parts("job_file")


@pytest.mark.parametrize("name", ["stored_job", "stored_schedule"])
def test_a_specification_that_was_stored_flat_becomes_parts(name: str) -> None:
    spec = parse_spec((FOLDER / f"{name}.json").read_text())
    assert spec == in_parts(name)
    assert parse_spec(spec.model_dump_json()) == spec


def test_the_stored_job_is_the_one_of_the_job_file() -> None:
    assert in_parts("stored_job") == in_parts("job_file")


@pytest.mark.parametrize("kind", KINDS)
def test_flat_settings_and_parts_are_two_forms_of_one_specification(kind: str) -> None:
    spec = JobSpec.of(base="m", kind=kind, steps=3, then=("kind=sft steps=2",))
    assert JobSpec.model_validate(flat_settings(spec)) == spec
    assert split_settings(split_settings(flat_settings(spec))) == split_settings(flat_settings(spec))
    assert spec.changed(seed=7).changed(seed=0) == spec


def test_a_job_file_may_have_the_parts_as_tables(tmp_path: Path) -> None:
    flat, parts = tmp_path / "flat.toml", tmp_path / "parts.toml"
    flat.write_text('base = "m"\nkind = "ppo"\nepochs = 2\nsteps = 3\ntask_ids = ["a"]\ngpus_per_node = 2\n')
    parts.write_text(
        'base = "m"\n[recipe]\nkind = "ppo"\nepochs = 2\n[optimiser]\nsteps = 3\n[episodes]\ntask_ids = ["a"]\n'
        "[run]\ngpus_per_node = 2\n"
    )
    expected = JobSpec.of(base="m", kind="ppo", epochs=2, steps=3, task_ids=("a",), gpus_per_node=2)
    assert [build_spec(read_job_file(path), where=str(path)) for path in (flat, parts)] == [expected, expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[episodes]\nsteps = 3\n", "steps: no setting of the part episodes"),
        ("steps = 3\n[optimiser]\nsteps = 4\n", "steps: given twice, once in the part optimiser"),
        ("run = 3\n", "run: got 3; expected a table of settings"),
        ("[run]\nrank = 3\n", "rank: no setting of the part run"),
    ],
)
def test_a_table_that_is_no_part_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'base = "m"\n{text}')
    with pytest.raises(ConfigurationError, match=message):
        build_spec(read_job_file(file), where=str(file))


def test_ranks_are_gpus_per_node_in_what_an_earlier_version_wrote() -> None:
    spec = JobSpec.of(base="m", kind="ppo", ranks=2, then=("kind=grpo ranks=1", {"kind": "sft", "run": {"ranks": 4}}))
    assert [stage.run.gpus_per_node for stage in (spec, *spec.stages)] == [2, 1, 4]
    with pytest.raises(ValidationError, match="ranks: given twice; gpus_per_node is its name now"):
        JobSpec.of(base="m", ranks=2, gpus_per_node=2)


def test_each_problem_names_the_flat_setting() -> None:
    with pytest.raises(ValidationError) as caught:
        JobSpec.of(base="m", steps=0, epochs=0, sample_rate=2, gpus_per_node=0)
    assert [problem.partition(":")[0] for problem in problems(caught.value)] == [
        "sample_rate", "epochs", "steps", "gpus_per_node",
    ]  # fmt: skip

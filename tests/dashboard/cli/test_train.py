"""``spanloop train``: each setting of a job is an option and a key of a job file."""

from contextlib import redirect_stdout
from datetime import datetime
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from spanloop.cli import app as command_tree
from spanloop.dashboard.view_models.jobs import to_spec
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec
from spanloop.training.spec.fields import SpecField, spec_fields
from spanloop.training.spec.flat_settings import flat_settings
from spanloop.training.spec.job_file import build_spec, read_job_file
from spanloop.training.spec.presets import PRESETS, Preset, preset_values

from ...training.recipe_kinds import flat_value

COMMAND = get_command(command_tree.app)
"""Made once; the runner of typer would make it for each call."""
OTHER_TEXTS = {
    "kind": "sft",
    "base": "m@v1",
    "policy_version": "m@v3",
    "then": "kind=dpo",
    # any function of one argument: the job is not run
    "selector": "builtins:len",
    "verl": "trainer.project_name=mine",
    "loggers": "tensorboard",
}


@pytest.fixture(scope="module")
def with_model(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    data_dir = DataDir(tmp_path_factory.mktemp("data")).open()
    model = tmp_path_factory.mktemp("model")
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"1")
    Registry(data_dir).add("m", model)
    return data_dir


NEEDED: dict[str, dict[str, Any]] = {
    "lora_alpha": {"lora_rank": 4},
    "lora_merge": {"lora_rank": 4},
    "gamma": {"credit": "process"},
    "coreset": {"coreset_share": 0.5},
    "coreset_share": {"coreset": "random", "coreset_size": 3},
    "coreset_size": {"coreset": "random", "coreset_share": 0.5},
    "held_out_share": {"then": "kind=dpo"},
    "lora_dropout": {"lora_rank": 4},
    "target_modules": {"lora_rank": 4},
    "nodes": {"ray_address": "host1:6379"},
    "clip_ratio_low": {"epochs": 2},
    "clip_ratio_high": {"epochs": 2},
    "cliprange_value": {"epochs": 2},
}
"""Settings without which another is refused."""


def other_value(field: SpecField) -> Any:
    """A valid value that is not the default."""
    if field.name in OTHER_TEXTS:
        return OTHER_TEXTS[field.name]
    default = next(iter(field.defaults.values()))
    if field.value_type is bool:
        return not default
    if field.choices:
        return next(str(item.value) for item in field.choices if item is not default)
    if field.value_type is int:
        return int(default or 0) + 1
    if field.value_type is float:
        return (default or 1.0) / 2
    return "2026-11-01T12:00:00Z" if field.value_type is datetime else "other"


def as_option(field: SpecField, value: Any) -> list[str]:
    flag = f"--{field.name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [flag, str(value)]


def as_toml(field: SpecField, value: Any) -> str:
    text = (
        str(value).lower() if isinstance(value, bool) else value if field.value_type in {int, float} else f'"{value}"'
    )
    return f"{field.name} = [{text}]" if field.is_list else f"{field.name} = {text}"


def submitted(data_dir: DataDir, *arguments: str) -> JobSpec:
    with redirect_stdout(StringIO()) as out:
        COMMAND.main(["train", *arguments, "--data-dir", str(data_dir.path)], "spanloop", standalone_mode=False)
    return JobApi(data_dir).get(out.getvalue().strip()).spec


@pytest.mark.parametrize("field", spec_fields(), ids=lambda field: field.name)
def test_each_setting_is_an_option_and_a_key_of_a_job_file(
    field: SpecField, with_model: DataDir, tmp_path: Path
) -> None:
    value = other_value(field)
    settings = {"base": "m", "kind": min(field.recipes)} | NEEDED.get(field.name, {}) | {field.name: value}
    fields = {each.name: each for each in spec_fields()}
    typed = {name: [given] if fields[name].is_list else given for name, given in settings.items()}
    expected = flat_value(JobSpec.model_validate(typed), field.name)
    options = [text for name, given in settings.items() for text in as_option(fields[name], given)]
    assert flat_value(submitted(with_model, *options), field.name) == expected
    file = tmp_path / "job.toml"
    file.write_text("\n".join(as_toml(fields[name], given) for name, given in settings.items()))
    assert flat_value(submitted(with_model, str(file)), field.name) == expected
    assert expected != field.shared_default


@pytest.mark.parametrize("field", [field for field in spec_fields() if field.is_optional], ids=lambda field: field.name)
def test_none_switches_an_optional_setting_off_everywhere(
    field: SpecField, with_model: DataDir, tmp_path: Path
) -> None:
    kind = min(field.recipes)
    fields = {each.name: each for each in spec_fields()}
    given = {"base": "m", "kind": str(kind)} | NEEDED.get(field.name, {})
    text = "".join(f"{as_toml(fields[name], value)}\n" for name, value in given.items())
    file = tmp_path / "job.toml"
    file.write_text(f"{text}{as_toml(field, other_value(field))}\n")
    assert flat_value(submitted(with_model, str(file)), field.name) is not None
    assert flat_value(submitted(with_model, str(file), f"--{field.name.replace('_', '-')}", "none"), field.name) is None
    file.write_text(f'{text}{field.name} = "None"\n')
    assert flat_value(submitted(with_model, str(file)), field.name) is None
    spec, default = to_spec(given | {field.name: "none"}), to_spec(given | {field.name: ""})
    assert isinstance(spec, JobSpec)
    assert isinstance(default, JobSpec)
    assert flat_value(spec, field.name) is None
    assert flat_value(default, field.name) == field.defaults[kind]


def test_what_is_neither_a_number_nor_none_is_explained(with_model: DataDir) -> None:
    arguments = ["train", "m", "--kl-budget", "nothing", "--data-dir", str(with_model.path)]
    completed = CliRunner().invoke(command_tree.app, arguments)
    assert isinstance(completed.exception, ConfigurationError)
    assert "valid number" in completed.exception.what
    assert ", or none for no limit (got 'nothing')" in completed.exception.what


@pytest.mark.parametrize("preset", list(Preset))
def test_a_preset_changes_defaults_only(preset: Preset, with_model: DataDir, tmp_path: Path) -> None:
    plain = JobSpec.of(base="m")
    expected = plain.changed(preset=preset, **preset_values(preset))
    file = tmp_path / "job.toml"
    file.write_text(f'base = "m"\npreset = "{preset}"\n')
    assert submitted(with_model, "m", "--preset", preset) == submitted(with_model, str(file)) == expected
    fields = spec_fields(preset)
    defaults = {field.name: field.defaults[plain.kind] for field in fields if plain.kind in field.defaults}
    assert defaults | {"base": "m", "preset": preset} == flat_settings(expected)
    chosen = submitted(with_model, str(file), "--micro-batch-tokens", "512", "--no-pause-serving", "--device", "cpu")
    assert (chosen.optimiser.micro_batch_tokens, chosen.run.pause_serving, chosen.run.device) == (512, False, "cpu")
    assert JobSpec.model_validate_json(chosen.model_dump_json()) == chosen


def test_a_preset_that_sets_what_a_kind_does_not_use_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"gpus_per_node: the preset gpus8 sets it, but it is a .* dpo does not use"
    ):
        build_spec({"base": "m", "kind": "dpo", "preset": "gpus8"}, where="job.toml")
    with pytest.raises(ConfigurationError, match="preset: Input should be"):
        build_spec({"base": "m", "preset": "gpus9"}, where="job.toml")


def test_options_override_the_job_file(with_model: DataDir, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('base = "m"\nsteps = 3\ndeploy = true\nsince = 2026-11-01T12:00:00Z\n')
    spec = submitted(with_model, str(file), "--steps", "7", "--no-deploy")
    assert (spec.optimiser.steps, spec.run.deploy, spec.episodes.since) == (
        7,
        False,
        datetime.fromisoformat("2026-11-01T12:00:00Z"),
    )


@pytest.mark.parametrize(
    ("text", "what", "next_step"),
    [
        ("learning_rat = 1.0", "learning_rat is no setting", "Did you mean learning_rate?"),
        ("xyzzy = 1", "xyzzy is no setting", "spanloop train --help"),
        ("steps = ", "cannot be read", "Write settings as TOML"),
    ],
)
def test_a_wrong_job_file_is_explained(tmp_path: Path, text: str, what: str, next_step: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=what) as caught:
        read_job_file(file)
    assert next_step in caught.value.next_step
    with pytest.raises(ConfigurationError, match="no job file"):
        read_job_file(tmp_path / "missing.toml")


def test_only_what_is_wrong_is_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_spec({"base": "m", "kind": "sft", "steps": 0}, where="job.toml")
    assert caught.value.what == (
        "job.toml: the job's settings are invalid: steps: Input should be greater than or equal to 1 (got 0)."
    )


def test_every_setting_is_in_the_reference() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "settings.md").read_text()
    for field in spec_fields():
        assert field.help
        line = next(line for line in page.splitlines() if line.startswith(f"| `{field.name}` |"))
        assert field.default_text in line
        assert not isinstance(field.default_text, Enum)


def test_every_value_of_a_preset_is_in_the_reference_with_its_reason() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "settings.md").read_text()
    for preset, values in PRESETS.items():
        for name, entry in values.items():
            assert f"| `{preset}` | `{name}` | `{entry.value}` | {entry.reason} |" in page


def test_the_kind_decides_what_is_refused() -> None:
    assert {field.name for field in spec_fields() if field.recipes == ("sft",)} == {
        "corrections",
        "dialogs",
        "max_reward",
        "min_reward",
        "outcomes",
        "test_freq",
    }

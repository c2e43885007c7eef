"""A recipe from a package: CISPO of ``examples/extending``, from options and job files to verl's gradient."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.models.registry import Registry
from spanloop.training.recipes.registry import RECIPE_POINT, find_recipe, recipe_names
from spanloop.training.run.job_api import JobApi, JobSpec
from spanloop.training.spec.choices import Backbone
from spanloop.training.spec.fields import spec_fields

from ..debug_training import assert_same_gradients
from ..recipe_kinds import flat_value, forget_recipes
from ..training_running import Runner
from ..training_seeding import seed_groups
from ..verl_plugin.test_backbones import trained
from ..verl_plugin.test_policy_losses import (
    Verl,
    compute_advantages,
    config_of,
    export,
    invent_models,
    numbers,
    policy_gradients,
    queue,
    verl,
)
from ..verl_plugin.test_stored_rollouts import Queue

__all__ = ["queue", "verl"]  # fixtures
pytestmark = pytest.mark.filterwarnings("ignore")
EPSILON = 0.2
"""So small that weights are clipped often."""


@pytest.fixture
def cispo(extending: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package is installed, for this process and for those that it starts."""
    monkeypatch.setattr(sys, "path", [str(extending), *sys.path])
    monkeypatch.setenv("PYTHONPATH", f"{extending}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    forget_recipes()
    yield extending
    forget_recipes()


@pytest.fixture
def with_model(data_dir: DataDir, tiny_model: Path) -> DataDir:
    Registry(data_dir).add("tiny", tiny_model)
    return data_dir


def spanloop(*arguments: str) -> str:
    command = Path(sys.executable).with_name("spanloop")
    return subprocess.run([command, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.mark.usefixtures("cispo")
@pytest.mark.parametrize("epochs", [1, 2])
def test_the_gradient_equals_numpy(epochs: int, verl: Verl, queue: Queue, tmp_path: Path) -> None:
    config = config_of(verl, "cispo", epochs=epochs, epsilon_high=EPSILON)
    clipped = 0
    for seed in range(6):
        exported = export(seed, "cispo", verl, queue, tmp_path)
        if exported is None:
            continue
        keys = exported.keys
        invent_models(queue, keys, np.random.default_rng(seed), single_pass=epochs == 1)
        compute_advantages(verl, config, "cispo", keys)
        rows = [queue.fields[key] for key in keys]
        tokens = sum(float(row["loss_mask"].sum()) for row in rows)
        for row, gradient in zip(rows, policy_gradients(verl, queue, keys, config), strict=True):
            ratio = np.exp(numbers(row["policy"]) - numbers(row["rollout_log_probs"]))
            weights = np.minimum(ratio, 1 + EPSILON)
            expected = -weights * numbers(row["advantages"]) * numbers(row["loss_mask"]) / tokens
            np.testing.assert_allclose(numbers(gradient), expected, rtol=1e-4, atol=1e-6)
            clipped += int((ratio > 1 + EPSILON).sum())
    assert clipped > 20


@pytest.mark.usefixtures("cispo")
def test_options_and_job_files_have_the_recipe_and_its_settings(with_model: DataDir, tmp_path: Path) -> None:
    where = ("--data-dir", str(with_model.path))
    explained = spanloop("train", "--help")
    assert "cispo" in explained
    assert "--epsilon-high" in explained
    by_options = spanloop("train", "tiny", "--kind", "cispo", "--epsilon-high", "3", "--epochs", "2", *where).strip()
    file = tmp_path / "job.toml"
    file.write_text('base = "tiny"\nkind = "cispo"\nepsilon_high = 3\nepochs = 2\n')
    by_file = spanloop("train", str(file), *where).strip()
    specs = [JobApi(with_model).get(job).spec for job in (by_options, by_file)]
    assert specs[0] == specs[1] == JobSpec.of(base="tiny", kind="cispo", epsilon_high=3, epochs=2)
    names = ("epsilon_high", "kl_coefficient", "loss_aggregation", "learning_rate")
    assert [flat_value(specs[0], name) for name in names] == [3, 0, "token-mean", 1e-6]
    (field,) = (field for field in spec_fields() if field.name == "epsilon_high")
    assert (field.recipes, field.minimum) == (("cispo",), 0)
    with pytest.raises(ValueError, match="epsilon_high: a cispo setting that grpo does not use"):
        JobSpec.of(base="tiny", kind="grpo", epsilon_high=3)


def test_jobs_of_a_recipe_that_is_no_longer_installed_are_named_and_hide_no_other_job(
    cispo: Path, with_model: DataDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    api = JobApi(with_model)
    gone = api.submit(JobSpec.of(base="tiny", kind="cispo")).id
    other = api.submit(JobSpec.of(base="tiny")).id
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(cispo)])
    forget_recipes()
    with caplog.at_level(logging.WARNING):
        assert [job.id for job in api.list()] == [other]
    assert f"The stored spec of {gone}" in caplog.text
    with pytest.raises(DataDirectoryError, match=r"No recipe is called 'cispo'.*install the package"):
        api.get(gone)
    assert "cispo" not in recipe_names()
    assert other in spanloop("jobs", "list", "--data-dir", str(with_model.path))


@pytest.mark.parametrize(
    ("target", "message"),
    [("broken.recipes:Gone", "cannot be loaded"), ("spanloop.training.recipes.sft:Sft", "whose name is 'broken'")],
)
def test_a_recipe_that_cannot_be_used_is_named_and_leaves_the_others_usable(
    target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{RECIPE_POINT.group}]\nbroken = {target}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    forget_recipes()
    try:
        with pytest.raises(ValueError, match=message):
            JobSpec.of(base="tiny", kind="broken")
        with caplog.at_level(logging.WARNING):
            (kind,) = (field for field in spec_fields() if field.name == "kind")
        assert "recipe broken is left out" in caplog.text
        assert [choice.value for choice in kind.choices] == [name for name in recipe_names() if name != "broken"]
    finally:
        forget_recipes()


def test_the_command_lines_help_imports_no_recipe(extending: Path) -> None:
    script = (
        "import sys\nsys.argv = ['spanloop', '--help']\nfrom spanloop.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONPATH": str(extending)}
    shown = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    loaded = set(shown.stderr.split())
    assert "train" in shown.stdout
    assert not {name for name in loaded if name.startswith(("extending", "spanloop.training.recipes", "pydantic"))}


def test_recipes_import_neither_torch_nor_verl() -> None:
    script = (
        "import sys\nfrom spanloop.training.recipes.registry import all_recipes\n"
        "print(len(all_recipes()), *{name.partition('.')[0] for name in sys.modules})"
    )
    count, *loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout.split()
    assert int(count) >= 8
    assert not {"torch", "verl", "ray", "polars", "transformers"} & set(loaded)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("cispo")
@pytest.mark.parametrize("epochs", [1, 2])
def test_rays_workers_compute_its_gradient(epochs: int, tiny_model: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"epochs": epochs, "epsilon_high": 1e-3, "steps": 1}
    debug, _ = trained(tiny_model, tmp_path / "debug", "cispo", **changes)
    ray, _ = trained(tiny_model, tmp_path / "ray", "cispo", **changes, backbone=Backbone.RAY)
    assert json.loads((tmp_path / "ray" / "plan.json").read_text())["recipe"]["epsilon_high"] == 1e-3
    assert_same_gradients(debug, ray, tolerance=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("cispo")
def test_a_job_trains_with_it_on_ray(runner: Runner, store: Store, tiny_model: Path, tmp_path: Path) -> None:
    seed_groups(store, tiny_model)
    spec = JobSpec.of(base="tiny", kind="cispo", epsilon_high=2.0, epochs=2, steps=1, batch_groups=2)
    job, status, log = runner.run(spec, tmp_path / "log.txt")
    assert (status, job.model_version) == (0, "tiny@v2"), log
    assert Registry(runner.data_dir).get("tiny@v2").metadata["kind"] == find_recipe("cispo").name

from datetime import UTC, datetime
from pathlib import Path

import pytest

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.paths.checksums import CHECKSUMS_FILE
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.prune import plan_prune, prune
from spanloop.training.run.job_api import JobApi, JobSpec


def reasons(data_dir: DataDir, keep: int = 1) -> dict[str, str]:
    return {each.version.reference: each.kept_because for each in plan_prune(data_dir, keep=keep)}


def test_what_is_live_its_ancestors_and_the_newest_stay(
    data_dir: DataDir, registry: Registry, model_folder: Path
) -> None:
    for parent in ("m@v2", "m@v2", "m@v6", "m@v7"):
        registry.add("m", model_folder, parent=parent)  # v5 to v8
    registry.add("other", model_folder)
    aliases = Aliases(data_dir)
    aliases.set("m@v4", "champion")
    aliases.set("m@v5", "champion")
    JobApi(data_dir).schedule(JobSpec.of(kind="sft", base="m@v7"), at=datetime(2100, 1, 1, tzinfo=UTC))
    schedule = JobApi(data_dir).schedules()[0].id
    assert reasons(data_dir) == {
        "m@v1": "ancestor of m@v5",
        "m@v2": "ancestor of m@v5",
        "m@v3": "ancestor of m@v4",
        "m@v4": "champion can be rolled back to it",
        "m@v5": "alias champion",
        "m@v6": "ancestor of m@v7",
        "m@v7": f"base of {schedule}",
        "m@v8": "among the newest 1",
        "other@v1": "among the newest 1",
    }
    registry.record_deployment("m@v8")
    registry.record_deployment("other@v1")
    kept = reasons(data_dir)
    assert (kept["m@v8"], kept["other@v1"]) == ("deployed last", "deployed last")


def test_a_pruned_version_loses_its_weights_and_nothing_else(
    data_dir: DataDir, registry: Registry, model_folder: Path
) -> None:
    branch = registry.add("m", model_folder, parent="m@v1")
    registry.add("m", model_folder, parent="m@v4")
    serving = branch.path.with_name("v5.serving")
    serving.mkdir()
    (serving / "model.safetensors").write_bytes(b"1234")
    Aliases(data_dir).set("m@v4", "champion")
    fingerprint = registry.tokenizer_fingerprint("m@v5")
    plan = [each for each in prune(data_dir, keep=1) if not each.kept_because]
    assert [each.version.reference for each in plan] == ["m@v5"]
    assert plan[0].size_bytes == (model_folder / "model.safetensors").stat().st_size + 4
    assert sorted(path.name for path in branch.path.iterdir()) == ["config.json", CHECKSUMS_FILE, "tokenizer.json"]
    assert not serving.exists()
    pruned = registry.get("m@v5")
    assert pruned.is_pruned
    assert registry.tokenizer_fingerprint("m@v5") == fingerprint is not None
    assert [version.reference for version in registry.lineage("m@v5")] == ["m@v1", "m@v5"]
    assert registry.get("m@v4").path.joinpath("model.safetensors").exists()
    assert reasons(data_dir) == reasons(data_dir) | {"m@v6": "among the newest 1"}
    assert "m@v5" not in reasons(data_dir)
    assert registry.add("m", model_folder).reference == "m@v7"


def test_a_prune_that_was_killed_is_completed_by_the_next_one(
    data_dir: DataDir, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    Aliases(data_dir).set("m@v1", "champion")

    def killed(_path: Path, *, missing_ok: bool) -> None:
        assert missing_ok
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            prune(data_dir, keep=1)
    assert registry.get("m@v2").is_pruned
    assert (registry.get("m@v2").path / "model.safetensors").exists()
    assert all(each.kept_because for each in prune(data_dir, keep=1))
    for reference in ("m@v2", "m@v3"):
        assert not (registry.get(reference).path / "model.safetensors").exists()


@pytest.mark.usefixtures("registry")
def test_a_pruned_version_is_neither_trained_nor_named(data_dir: DataDir) -> None:
    Aliases(data_dir).set("m@v1", "champion")
    prune(data_dir, keep=1, name="elsewhere")
    JobApi(data_dir).submit(JobSpec.of(kind="sft", base="m@v2"))
    prune(data_dir, keep=1)
    with pytest.raises(JobError, match=r"weights of m@v3 were pruned") as caught:
        JobApi(data_dir).submit(JobSpec.of(kind="sft", base="m@v3"))
    assert "backup" in caught.value.next_step
    with pytest.raises(JobError, match="pruned"):
        Aliases(data_dir).set("m@v3", "champion")
    JobApi(data_dir).submit(JobSpec.of(kind="sft", base="m@v2"))  # the base of an open job stays
    with pytest.raises(ValueError, match="expected at least 1"):
        prune(data_dir, keep=0)

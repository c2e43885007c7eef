"""Model versions in object storage: registered, loaded through the cache, pruned and exported."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError, ObjectStorageError
from spanloop.foundation.objects import open_store
from spanloop.foundation.objects.manifest import ObjectManifest
from spanloop.foundation.paths import DataDir
from spanloop.runtime.service_checks import service_checks
from spanloop.semconv.environment import STORAGE_URL_ENV
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.deploy import served_weights
from spanloop.training.promotion.prune import prune


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv(STORAGE_URL_ENV, f"file://{tmp_path}/storage")
    return DataDir(tmp_path / "here").open()


def model_folder(folder: Path, weights: str) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}, "merges": []}}')
    (folder / "model.safetensors").write_text(weights)
    return folder


def test_a_version_is_an_object_that_each_host_copies(
    here: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(here)
    version = registry.add("m", model_folder(tmp_path / "source", "1"))
    assert version.object_name is not None
    assert (version.path.exists(), list(here.models.rglob(".incoming*"))) == (False, [])
    assert (registry.folder(version) / "model.safetensors").read_text() == "1"
    light = registry.folder(version, weights=False)
    assert (light / "tokenizer.json").exists()
    assert not (light / "model.safetensors").exists()
    assert registry.tokenizer_fingerprint("m@v1") is not None
    # the same folder again: another version of the same object
    again = Registry(here).add("m", tmp_path / "source")
    assert (again.reference, again.object_name) == ("m@v2", version.object_name)
    monkeypatch.delenv(STORAGE_URL_ENV)
    with pytest.raises(ConfigurationError, match="The version is in object storage, and SPANLOOP_STORAGE_URL is not"):
        Registry(here).folder(version)


def test_doctor_names_the_storage(here: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Registry(here).add("m", model_folder(tmp_path / "source", "1"))
    (found,) = [check for check in service_checks(here.path) if check.name == "object storage"]
    assert (found.ok, found.detail) == (True, f"file://{tmp_path}/storage answers, with 1 objects of models")
    monkeypatch.setenv(STORAGE_URL_ENV, "nowhere://bucket")
    (found,) = [check for check in service_checks(here.path) if check.name == "object storage"]
    assert (found.ok, "Protocol not known: nowhere" in found.detail) == (False, True)


def test_what_an_engine_loads_is_stored_once(here: DataDir, tmp_path: Path) -> None:
    registry = Registry(here)
    version = registry.add("m", model_folder(tmp_path / "source", "1"))
    assert served_weights(registry, version, lambda model: model.path)["path"] == version.object_name

    def copied(folder: Path) -> Path:
        target = folder.with_name(f"{folder.name}.serving")
        target.mkdir()
        (target / "model.safetensors").write_text((folder / "model.safetensors").read_text() * 2)
        return target

    for _ in range(2):
        weights = served_weights(registry, version, lambda model: copied(model.path))
        assert weights["path"] == f"{version.object_name}.serving"
    assert not list(here.path.glob("serving-*"))
    prune(here, keep=1)
    registry.add("m", model_folder(tmp_path / "newer", "2"))
    assert len(open_store(f"file://{tmp_path}/storage").names("models")) == 3


def test_pruned_weights_leave_the_storage_unless_another_version_has_them(here: DataDir, tmp_path: Path) -> None:
    registry = Registry(here)
    old = registry.add("m", model_folder(tmp_path / "old", "1"))
    registry.add("m", tmp_path / "old")
    registry.add("m", model_folder(tmp_path / "new", "2"))
    files = tmp_path / "storage" / str(old.object_name) / "files"
    count = len(list(files.iterdir()))
    plan = prune(here, keep=2)
    assert [each.size_bytes for each in plan if not each.kept_because] == [1]
    assert len(list(files.iterdir())) == count
    prune(here, keep=1)
    assert len(list(files.iterdir())) == count - 1
    fresh = Registry(here)
    assert fresh.tokenizer_fingerprint("m@v1") is not None
    assert not (fresh.folder(fresh.get("m@v1")) / "model.safetensors").exists()
    # registered again, it is complete again
    assert (fresh.folder(fresh.add("m", tmp_path / "old")) / "model.safetensors").read_text() == "1"


def test_a_version_that_changes_while_it_is_registered_is_refused(
    here: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(here)
    store = registry.objects.store

    def store_and_lose(model: str, folder: Path) -> ObjectManifest:
        manifest = store(model, folder)
        open_store(f"file://{tmp_path}/storage").remove(manifest.name)
        return manifest

    monkeypatch.setattr(registry.objects, "store", store_and_lose)
    with pytest.raises(ObjectStorageError, match="was changed while it was registered; nothing was registered"):
        registry.add("m", model_folder(tmp_path / "source", "1"))
    assert registry.list() == ()

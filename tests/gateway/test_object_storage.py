"""A model version in object storage is served through the gateway's local copy."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError, ObjectStorageError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.objects import open_store
from spanloop.foundation.paths import DataDir
from spanloop.gateway.engine.deployment import Deployment, DeploymentFile
from spanloop.gateway.local_copies import LocalCopies
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.deploy import deploy

from ..object_server import Fault, ObjectServer, object_server
from .support import RunningGateway, wait_until, write_model


def as_it_is(model: ModelVersion) -> Path:
    return model.path


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


def test_a_version_is_fetched_checked_and_held_while_it_is_served(
    s3: ObjectServer,
    start_gateway: Callable[..., RunningGateway],
    upstream: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other host has no folder in common with the gateway, which has room for one version more than it serves."""
    with s3.used("served") as url:
        here = DataDir(tmp_path / "here").open()
        versions = [Registry(here).add("m", write_model(tmp_path / f"source-{number}", number)) for number in (2, 3, 4)]
        monkeypatch.setenv("SPANLOOP_STORAGE_CACHE_BYTES", str(2 * versions[0].size_bytes + 3000))
        gateway = start_gateway(upstream=upstream, drain_timeout_s=30.0)
        wait_until(lambda: gateway.health()["engine"] == "serving")
        monkeypatch.setenv("SPANLOOP_GATEWAY_URL", gateway.url)
        keys = KeyRing(gateway.data_dir)
        monkeypatch.setenv("SPANLOOP_KEY", keys.create("deployer", [Scope.TRAIN, Scope.SERVE]).secret)
        shutil.rmtree(here.path / "objects", ignore_errors=True)
        copies = gateway.data_dir.path / "objects"
        assert deploy(here, "m@v1", serving_path=as_it_is).reference == "m@v1"
        status = gateway.admin_get("status").json()["deployment"]
        assert Path(status["path"]).parent == copies
        assert (Path(status["path"]) / "model.safetensors").read_text() == "2"
        # a version that cannot be fetched leaves the former one serving
        blob = open_store(url).get(str(versions[1].object_name)).files["model.safetensors"].sha256
        s3.proxy.fail(Fault.SERVER_ERROR, f"GET .*{blob}", times=1000)
        monkeypatch.setattr("spanloop.foundation.objects.remote._PAUSES_S", ())
        answer = gateway.admin("deploy", name="m", version="v2", path=str(versions[1].object_name))
        assert answer.status_code == 500
        assert "Reading models/m/" in answer.text
        assert "at s3://spanloop-test/served failed" in answer.text
        assert gateway.admin_get("status").json()["deployment"] == status
        s3.proxy.rules.clear()
        for reference in ("m@v2", "m@v3", "m@v1"):
            deploy(here, reference, serving_path=as_it_is)
        served = Path(gateway.admin_get("status").json()["deployment"]["path"])
        assert (served / "model.safetensors").read_text() == "2"


def test_a_gateway_that_starts_again_fetches_what_was_removed_or_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_STORAGE_URL", f"file://{tmp_path}/storage")
    version = Registry(DataDir(tmp_path / "here").open()).add("m", write_model(tmp_path / "source", 2))
    data_dir = DataDir(tmp_path / "gateway").open()
    document = {"name": "m", "version": "v1", "path": str(version.object_name)}
    requested = LocalCopies(data_dir, data_dir.shared)
    deployment = Deployment.parse(requested.resolve(document))
    DeploymentFile(data_dir).write(deployment)
    requested.keep(None)
    moved = DataDir(tmp_path / "moved")
    data_dir.path.rename(moved.path)
    shutil.rmtree(moved.path / "objects")
    found = DeploymentFile(moved).read()
    assert found is not None
    copies = LocalCopies(moved, moved.shared)
    copies.hold(found)
    assert (Path(found.path) / "model.safetensors").read_text() == "2"
    assert Path(found.path).is_relative_to(moved.path)
    with pytest.raises(ConfigurationError, match="'path' of a deployment leads out of the shared folder"):
        copies.resolve({"path": "models/../../m"})
    copies.keep(found)
    size_bytes = open_store(f"file://{tmp_path}/storage").get(str(version.object_name)).size_bytes
    monkeypatch.setenv("SPANLOOP_STORAGE_CACHE_BYTES", str(size_bytes + 100))
    other = Registry(DataDir(tmp_path / "here")).add("m", write_model(tmp_path / "other", 3))
    with pytest.raises(ObjectStorageError, match="are in use"):
        LocalCopies(moved, moved.shared).resolve({"path": str(other.object_name)})
    copies.keep(None)
    LocalCopies(moved, moved.shared).resolve({"path": str(other.object_name)})

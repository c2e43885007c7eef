"""A gateway on another host: found by its address, opened by a key, fed from the shared folder."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spanloop.evaluation.runner.served_model import resolve_model
from spanloop.foundation.errors import ConfigurationError, NotRunningError, ServiceError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.runtime.check import Check
from spanloop.runtime.service_checks import service_checks
from spanloop.store import server_clock
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.leadership import SCHEDULER, Leadership
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.canary.gateway_canary import served_version
from spanloop.training.promotion.deploy import deploy

from .support import RunningGateway, wait_until, write_model


def as_it_is(model: ModelVersion) -> Path:
    return model.path


@pytest.fixture
def elsewhere(
    tmp_path: Path, start_gateway: Callable[..., RunningGateway], upstream: str, monkeypatch: pytest.MonkeyPatch
) -> RunningGateway:
    """A gateway whose shared folder is mounted at another place than this process's."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "mounted").symlink_to(tmp_path / "shared")
    monkeypatch.setenv("SPANLOOP_SHARED_DIR", str(tmp_path / "mounted"))
    gateway = start_gateway(upstream=upstream, drain_timeout_s=30.0)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    monkeypatch.setenv("SPANLOOP_SHARED_DIR", str(tmp_path / "shared"))
    monkeypatch.setenv("SPANLOOP_GATEWAY_URL", gateway.url)
    return gateway


@pytest.fixture
def here(tmp_path: Path, elsewhere: RunningGateway) -> DataDir:
    """The data directory of another host, with two versions of a model in the shared folder."""
    assert elsewhere.url
    directory = DataDir(tmp_path / "here").open()
    for version in (2, 3):
        Registry(directory).add("m", write_model(tmp_path / f"source-{version}", version))
    return directory


def new_key(directory: DataDir, *scopes: Scope) -> str:
    return KeyRing(directory).create("-".join(scopes), scopes).secret


def test_a_version_in_the_shared_folder_is_deployed_with_a_key(
    elsewhere: RunningGateway, here: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="needs a key, and SPANLOOP_KEY is not set"):
        deploy(here, "m@v1", serving_path=as_it_is)
    monkeypatch.setenv("SPANLOOP_KEY", new_key(here, Scope.READ))
    with pytest.raises(ConfigurationError, match=r"rejected the key \(403\).*has the scopes read; expected train"):
        deploy(here, "m@v1", serving_path=as_it_is)
    monkeypatch.setenv("SPANLOOP_KEY", new_key(here, Scope.TRAIN, Scope.SERVE))
    assert deploy(here, "m@v1", serving_path=as_it_is).reference == "m@v1"
    assert served_version(here) == "m@v1"
    gateway, model = resolve_model(here, "m")
    assert (gateway.url, gateway.is_configured, model) == (elsewhere.url, True, "m@v1")
    path = elsewhere.admin_get("status").json()["deployment"]["path"]
    assert path.endswith("/mounted/models/m/v1")


def test_a_damaged_folder_is_refused_and_the_former_version_serves_on(
    elsewhere: RunningGateway, here: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_KEY", new_key(here, Scope.TRAIN))
    deploy(here, "m@v1", serving_path=as_it_is)
    weights = here.models / "m" / "v2" / "model.safetensors"
    weights.write_text("30")
    with pytest.raises(ServiceError, match=r"mounted/models/m/v2/model.safetensors is not complete: got 2 bytes"):
        deploy(here, "m@v2", serving_path=as_it_is)
    weights.write_text("4")
    with pytest.raises(ServiceError, match="is not the file that was registered: got SHA-256"):
        deploy(here, "m@v2", serving_path=as_it_is)
    assert served_version(here) == "m@v1"
    answer = elsewhere.admin("deploy", name="m", version="v9", path="models/../../v9")
    assert (answer.status_code, "leads out of the shared folder" in answer.text) == (400, True)


def test_a_gateway_that_is_gone_is_named_by_its_address(
    elsewhere: RunningGateway, here: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_KEY", new_key(here, Scope.TRAIN))
    elsewhere.stop()
    with pytest.raises(NotRunningError, match=re.escape(elsewhere.url)) as refused:
        deploy(here, "m@v1", serving_path=as_it_is)
    assert "spanloop serve gateway" in refused.value.next_step


def found(directory: DataDir) -> dict[str, Check]:
    return {check.name: check for check in service_checks(directory.path)}


def test_doctor_names_address_key_version_and_shared_folder(
    elsewhere: RunningGateway, here: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = found(here)
    assert (checks["gateway"].ok, checks["gateway version"].ok, checks["shared folder"].ok) == (True, True, True)
    assert "no key is needed for serve, read; not for train" in checks["gateway"].detail
    continuation = checks["gateway continuation"]
    assert (continuation.ok, continuation.needed) == (False, False)
    assert continuation.detail.startswith("conversations are tokenised again: the engine takes no token ids")
    assert "--enable-scale-out" in continuation.fix

    KeyRing(here).create("first", [Scope.INGEST])
    without = found(here)["gateway"]
    assert "needs a key, and none is set" in without.detail
    assert "spanloop keys create NAME --scope serve" in without.fix
    monkeypatch.setenv("SPANLOOP_KEY", "spanloop_unknown")
    assert "does not know the key" in found(here)["gateway"].detail
    monkeypatch.setenv("SPANLOOP_KEY", new_key(here, Scope.SCORE))
    assert "accepts the key for none of serve, train, read" in found(here)["gateway"].detail
    monkeypatch.setenv("SPANLOOP_KEY", new_key(here, Scope.SERVE, Scope.TRAIN))
    assert found(here)["gateway"].detail.endswith("the key is accepted for serve, train; not for read")

    shutil.rmtree(here.shared)
    assert "is not a directory" in found(here)["shared folder"].detail
    elsewhere.stop()
    gone = found(here)["gateway"]
    assert (gone.ok, "does not answer" in gone.detail) == (False, True)
    assert "spanloop serve gateway; or correct SPANLOOP_GATEWAY_URL" in gone.fix


def test_doctor_asks_the_gateway_of_its_data_directory(gateway: RunningGateway, tmp_path: Path) -> None:
    assert found(DataDir(tmp_path / "empty").open()) == {}
    with gateway.data_dir.announce("gateway", gateway.url):
        checks = found(gateway.data_dir)
    assert list(checks) == ["gateway continuation"]
    assert checks["gateway continuation"].detail.startswith("conversations are tokenised again")


def test_doctor_reports_a_clock_that_is_off(here: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def clock(_: object) -> server_clock.ServerClock:
        return server_clock.ServerClock("26.9", -2.5)

    monkeypatch.setattr(server_clock, "server_clock", clock)
    monkeypatch.setenv("SPANLOOP_CLICKHOUSE_URL", "http://me:secret@ch.example/db")
    monkeypatch.setenv("SPANLOOP_CONTROL_URL", f"sqlite:///{here.control_db}")
    checks = found(here)
    assert checks["ClickHouse"].ok
    assert "secret" not in checks["ClickHouse"].detail
    assert not checks["clock of ClickHouse"].ok
    assert "2.5 s behind this host's" in checks["clock of ClickHouse"].detail
    assert checks["clock of the control database"].ok
    assert checks["scheduler"].fix == "Start one: spanloop serve scheduler"
    leadership = Leadership(ControlDatabase(ControlPaths.of(here)), SCHEDULER, owner=str(ProcessIdentity.current()))
    assert leadership.hold()
    assert found(here)["scheduler"].ok

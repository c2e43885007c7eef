"""A gateway that follows another one serves the same versions, by the same names."""

import socket
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.gateway.app import Gateway
from spanloop.gateway.following import follower
from spanloop.gateway.following.leader import Leader
from spanloop.semconv.environment import KEY_ENV

from ..ports import free_port
from .child_engine import write_serving_environment
from .support import TIMEOUT_S, RunningGateway, Stack, serving, wait_until, write_model

Start = Callable[..., RunningGateway]


@pytest.fixture(autouse=True)
def quick_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(follower, "_POLL_S", 0.05)
    monkeypatch.setattr(follower, "_AFTER_FAILURE_S", 0.05)
    write_serving_environment(tmp_path / "serving", "vllm-0.33.0", monkeypatch)


@pytest.fixture
def start_following(
    tmp_path: Path, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> Generator[Callable[[RunningGateway], RunningGateway]]:
    """Start a gateway as on another host: the shared folder has another path there."""
    with Stack() as stack:

        def start(leader: RunningGateway) -> RunningGateway:
            monkeypatch.setenv(KEY_ENV, (data_dir.gateway / "admin.token").read_text().strip())
            elsewhere = DataDir(tmp_path / "elsewhere").open()
            elsewhere.models.symlink_to(data_dir.models)
            gateway = Gateway(GatewaySettings(follow=leader.url), elsewhere)
            server = serving(gateway.application())
            return RunningGateway(stack.enter(server), elsewhere, gateway, stop=lambda: stack.leave(server))

        yield start


def deploy(gateway: RunningGateway, label: str, path: Path, **fields: object) -> httpx.Response:
    name, _, version = label.partition("@")
    body = {"name": name, "version": version, "path": str(path.relative_to(gateway.data_dir.shared))}
    return gateway.admin("deploy", **body, **fields)


def served(gateway: RunningGateway) -> list[str]:
    models = httpx.get(f"{gateway.url}/v1/models", timeout=TIMEOUT_S).json()["data"]
    return [model["id"] for model in models if "@" in model["id"]]


def test_versions_models_and_names_are_taken_over(
    start_gateway: Start, start_following: Callable[[RunningGateway], RunningGateway], data_dir: DataDir
) -> None:
    first, second, other = (write_model(data_dir.models / f"m{number}", number) for number in (1, 2, 3))
    leader = start_gateway()
    assert deploy(leader, "office@v1", first).status_code == 200
    following = start_following(leader)
    wait_until(lambda: served(following) == ["office@v1"])
    assert following.chat(model="office", return_token_ids=True).json()["choices"][0]["token_ids"] == [1001]
    assert following.admin_get("status").json()["deployment"]["path"] == str(
        following.data_dir.shared / "models" / "m1"
    )

    assert deploy(leader, "support@v1", other, beside=True).status_code == 200
    assert leader.admin("names", model="office", names=["gpt-4o-mini"]).status_code == 200
    wait_until(lambda: served(following) == ["office@v1", "support@v1"])
    wait_until(lambda: following.chat(model="gpt-4o-mini").status_code == 200)
    assert deploy(leader, "office@v2", second).status_code == 200
    wait_until(lambda: served(following) == ["office@v2", "support@v1"])
    assert leader.admin("stop", model="support").status_code == 200
    assert leader.admin("names", model="office", names=[]).status_code == 200
    wait_until(lambda: served(following) == ["office@v2"])
    wait_until(lambda: following.chat(model="gpt-4o-mini").status_code == 404)
    assert following.health()["follows"] == leader.url
    assert leader.health()["follows"] == ""


def test_deployments_are_refused_where_another_gateway_leads(
    start_gateway: Start, start_following: Callable[[RunningGateway], RunningGateway], data_dir: DataDir
) -> None:
    leader = start_gateway()
    following = start_following(leader)
    model = write_model(data_dir.models / "m1", 1)
    for response in (
        following.admin("deploy", name="office", version="v1", path=str(model)),
        following.admin("names", model="office", names=[]),
        following.admin("stop", model="office"),
        following.admin("canary"),
    ):
        assert response.status_code == 409
        error = response.json()["error"]
        assert error["message"] == f"This gateway follows {leader.url}: send the request to that one."
        assert error["code"] == "follows_another"


def test_it_goes_on_while_the_leader_is_away(
    start_gateway: Start, start_following: Callable[[RunningGateway], RunningGateway], data_dir: DataDir
) -> None:
    leader = start_gateway()
    assert deploy(leader, "office@v1", write_model(data_dir.models / "m1", 1)).status_code == 200
    following = start_following(leader)
    wait_until(lambda: served(following) == ["office@v1"])
    leader.stop()
    wait_until(lambda: following.health()["status"] == "degraded")
    assert f"{leader.url}/admin/deployments cannot be read" in following.health()["error"]
    assert following.chat(model="office").status_code == 200


def test_a_version_whose_folder_is_missing_here_is_reported_and_taken_over_later(
    start_gateway: Start, start_following: Callable[[RunningGateway], RunningGateway], data_dir: DataDir
) -> None:
    leader = start_gateway()
    following = start_following(leader)
    following.data_dir.models.unlink()
    assert httpx.get(f"{following.url}/readyz", timeout=TIMEOUT_S).status_code == 503
    assert deploy(leader, "office@v1", write_model(data_dir.models / "m1", 1)).status_code == 200
    wait_until(lambda: "does not exist on this host" in following.health()["error"])
    following.data_dir.models.symlink_to(data_dir.models)
    wait_until(lambda: served(following) == ["office@v1"])
    wait_until(lambda: following.health()["status"] == "ok")
    assert httpx.get(f"{following.url}/readyz", timeout=TIMEOUT_S).status_code == 200


async def test_a_gateway_knows_its_own_address() -> None:
    port = free_port()
    for url, is_this in (
        (f"http://localhost:{port}", True),
        (f"http://{socket.gethostname()}:{port}", True),
        (f"http://localhost:{port + 1}", False),
        (f"http://192.0.2.1:{port}", False),
        (f"http://no-such-host.invalid:{port}", False),
    ):
        assert await Leader(url, port).find_out() is is_this


def test_settings_that_cannot_work_are_refused(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="expected the URL of a gateway"):
        GatewaySettings(follow="gateway1:8010")
    monkeypatch.delenv(KEY_ENV, raising=False)
    with pytest.raises(ConfigurationError, match=f"follows http://gateway1:8010, and {KEY_ENV} is not set"):
        Gateway(GatewaySettings(follow="http://gateway1:8010"), data_dir)

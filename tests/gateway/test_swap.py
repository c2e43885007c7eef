"""Deployments: waiting requests, the weights that respond, and the state after a failure."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.foundation.trained_logprobs import TrainedLogprobs

from .support import TIMEOUT_S, RunningGateway, StandIn, data_of, wait_until, write_model


def deploy(gateway: RunningGateway, folder: Path, version: str = "v2") -> httpx.Response:
    return gateway.admin("deploy", name="m", version=version, path=str(folder))


def test_a_hot_swap_changes_the_weights_and_clears_the_prefix_cache(
    gateway: RunningGateway, stand_in: StandIn, tmp_path: Path
) -> None:
    response = deploy(gateway, write_model(tmp_path / "v2", 2))
    assert response.status_code == 200
    assert response.json()["model"] == "m@v2"
    assert response.json()["method"] == "hot_swap"
    assert stand_in.calls == ["reload", "reset_prefix_cache"]
    assert gateway.chat(model="m@v2").json()["model"] == "m@v2"
    assert gateway.chat(model="stand-in@external").status_code == 404
    assert gateway.captures()[0].response_token_ids[0] == 1002


def test_deploying_the_served_version_changes_nothing(
    gateway: RunningGateway, stand_in: StandIn, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "v2", 2)
    deploy(gateway, folder)
    assert deploy(gateway, folder).json()["method"] == "unchanged"
    assert stand_in.calls.count("reload") == 1


def test_swaps_under_load_drop_no_request_and_record_the_right_version(
    gateway: RunningGateway, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in.token_delay_s = 0.005
    stop = threading.Event()
    folders = {f"v{number}": write_model(tmp_path / f"v{number}", number) for number in range(2, 6)}

    models: list[str] = []

    def ask(worker: int) -> None:
        while not stop.is_set():
            response = gateway.chat(stream=worker % 2 == 0)
            assert response.status_code == 200, response.text
            document = data_of(response)[0] if worker % 2 == 0 else response.json()
            models.append(document["model"])

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(ask, number) for number in range(8)]
        try:
            wait_until(lambda: "stand-in@external" in models)
            for version, folder in folders.items():
                assert deploy(gateway, folder, version).json()["method"] == "hot_swap"
                wait_until(lambda label=f"m@{version}": label in models)  # type: ignore[misc]
        finally:
            stop.set()
        for worker in workers:
            worker.result()
    captures = gateway.captures()
    assert len(captures) == len(models)
    assert set(models) == {"stand-in@external", "m@v2", "m@v3", "m@v4", "m@v5"}
    for capture in captures:
        weights = capture.response_token_ids[0] - 1000
        assert capture.policy_version == ("stand-in@external" if weights == 1 else f"m@v{weights}")
        assert capture.is_complete


def test_a_preempted_request_is_repeated_on_the_new_weights(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn, tmp_path: Path
) -> None:
    gateway = start_gateway(upstream=upstream, drain_timeout_s=0.1)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    stand_in.paused = True
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(gateway.chat)
        wait_until(lambda: stand_in.running == 1)
        deployed = deploy(gateway, write_model(tmp_path / "v2", 2))
        stand_in.paused = False
        response = pending.result()
    assert deployed.json()["preempted"] == 1
    assert (response.status_code, response.json()["model"]) == (200, "m@v2")
    assert [capture.policy_version for capture in gateway.captures()] == ["m@v2"]


def test_a_preempted_stream_ends_with_an_error_and_an_incomplete_capture(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn, tmp_path: Path
) -> None:
    gateway = start_gateway(upstream=upstream, drain_timeout_s=0.1)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    stand_in.token_delay_s = 30.0
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=TIMEOUT_S) as response:
        pieces = response.iter_raw()
        delivered = next(pieces)
        deploy(gateway, write_model(tmp_path / "v2", 2))
        *_, last = (delivered + b"".join(pieces)).strip().split(b"\n\n")
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "model_replaced"
    (capture,) = gateway.captures()
    assert capture.policy_version == "stand-in@external"
    assert not capture.is_complete


def test_requests_wait_during_a_swap(gateway: RunningGateway, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.paused = True
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(gateway.chat)
        wait_until(lambda: stand_in.running == 1)
        swap = pool.submit(deploy, gateway, write_model(tmp_path / "v2", 2))
        wait_until(lambda: gateway.health()["engine"] == "swapping")
        waiting = pool.submit(gateway.chat)
        wait_until(lambda: gateway.health()["held_requests"] == 1)
        stand_in.paused = False
        assert running.result().json()["model"] == "stand-in@external"
        assert waiting.result().json()["model"] == "m@v2"
        assert swap.result().status_code == 200


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tied": True}, "cannot be loaded into the running upstream"),
        ({"hidden_size": 8}, "cannot be loaded into the running upstream"),
        ({"chat_template": "other"}, "cannot be loaded into the running upstream"),
    ],
)
def test_an_impossible_hot_swap_fails_and_the_old_version_stays(
    gateway: RunningGateway, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    response = deploy(gateway, write_model(tmp_path / "v2", 2, **change))  # type: ignore[arg-type] # one of several
    assert response.status_code == 500
    assert says in response.json()["error"]["message"]
    assert "stand-in@external serves again" in response.json()["error"]["message"]
    assert gateway.chat().json()["model"] == "stand-in@external"


def test_a_reload_that_changes_no_logprobs_fails(gateway: RunningGateway, stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.reload_changes_nothing = True
    response = deploy(gateway, write_model(tmp_path / "v2", 2))
    assert response.status_code == 500
    assert "same logprobs for a fixed prompt as before" in response.json()["error"]["message"]
    assert gateway.chat().json()["model"] == "stand-in@external"


@pytest.mark.parametrize(("offset", "is_served"), [(0.09, True), (0.11, False)])
def test_swapped_weights_give_the_log_probabilities_of_their_trainer(
    gateway: RunningGateway, tmp_path: Path, *, offset: float, is_served: bool
) -> None:
    folder = write_model(tmp_path / "v2", 2)
    TrainedLogprobs((1, 2), (-1.0 - offset,)).write(folder)
    response = deploy(gateway, folder)
    assert response.is_success == is_served
    assert gateway.chat().json()["model"] == ("m@v2" if is_served else "stand-in@external")
    if not is_served:
        message = response.json()["error"]["message"]
        assert (
            "differ from those that the trainer of m@v2 computed by 0.110 on average, expected at most 0.1" in message
        )


def test_damaged_log_probabilities_of_a_trainer_are_named(gateway: RunningGateway, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "v2", 2)
    (folder / "trained_logprobs.json").write_text('{"token_ids": [1, 2], "logprobs": []}')
    message = deploy(gateway, folder).json()["error"]["message"]
    assert "trained_logprobs.json is damaged: 2 token ids and 0 log-probabilities, expected one fewer" in message
    assert gateway.chat().json()["model"] == "stand-in@external"


def test_a_failed_reload_rolls_back_to_the_old_weights(
    gateway: RunningGateway, stand_in: StandIn, tmp_path: Path
) -> None:
    broken = write_model(tmp_path / "v2", 2)
    (broken / "model.safetensors").write_text("damaged")
    response = deploy(gateway, broken)
    assert response.status_code == 500
    assert "cannot load" in response.json()["error"]["message"]
    assert stand_in.weights == 1
    assert gateway.chat().json()["model"] == "stand-in@external"
    assert "cannot load" in gateway.admin("status").json()["error"]
    assert not (gateway.data_dir.gateway / "deployment.json").exists()


def test_an_upstream_that_cannot_reload_keeps_its_weights(
    gateway: RunningGateway, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in.has_dev_mode = False
    response = deploy(gateway, write_model(tmp_path / "v2", 2))
    assert response.status_code == 500
    assert "collective_rpc failed: 404" in response.json()["error"]["message"]
    assert gateway.chat().json()["model"] == "stand-in@external"


def test_a_restarted_gateway_names_what_its_upstream_has_loaded(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn, tmp_path: Path
) -> None:
    def model_after_a_start(change: Callable[[RunningGateway], object] = lambda _: None) -> str:
        gateway = start_gateway(upstream=upstream)
        wait_until(lambda: gateway.health()["engine"] == "serving")
        named: str = gateway.chat().json()["model"]
        change(gateway)
        gateway.stop()
        return named

    folder = write_model(tmp_path / "v2", 2)
    assert model_after_a_start(lambda gateway: deploy(gateway, folder)) == "stand-in@external"
    assert model_after_a_start() == "m@v2"

    stand_in.weights = 1  # it was started again with the weights of its command line
    assert model_after_a_start() == "stand-in@external"


def test_a_deployment_that_was_interrupted_can_be_repeated(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn, tmp_path: Path, data_dir: DataDir
) -> None:
    folder = write_model(tmp_path / "v2", 2)
    first = start_gateway(upstream=upstream)
    wait_until(lambda: first.health()["engine"] == "serving")
    assert deploy(first, folder).status_code == 200
    first.stop()
    file = data_dir.gateway / "upstream_weights.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"after": []}))

    second = start_gateway(upstream=upstream)
    wait_until(lambda: second.health()["engine"] == "serving")
    assert second.chat().json()["model"] == "stand-in@external"
    assert deploy(second, folder).status_code == 200
    assert (second.chat().json()["model"], stand_in.weights) == ("m@v2", 2)
    second.stop()
    file.write_text("[1]")
    third = start_gateway(upstream=upstream)
    wait_until(lambda: third.health()["engine"] == "serving")
    assert third.chat().json()["model"] == "stand-in@external"


def test_unknown_weights_after_a_failed_reload_are_not_served(
    gateway: RunningGateway, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in.reload_ruins = True
    response = deploy(gateway, write_model(tmp_path / "v2", 2))
    assert response.status_code == 500
    assert "Rolling back to stand-in@external failed too" in response.json()["error"]["message"]
    response = gateway.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_failed")
    assert gateway.health()["status"] == "degraded"


def test_the_last_deployment_is_stored_on_disk(gateway: RunningGateway, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "v2", 2)
    deploy(gateway, folder)
    stored = json.loads((gateway.data_dir.gateway / "deployment.json").read_text())
    assert stored == {"name": "m", "version": "v2", "path": str(folder), "adapter": "", "tokenizer": ""}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"name": "", "version": "v1", "path": "/x"}, "'name'"),
        ({"name": "m", "version": "v 1", "path": "/x"}, "'version'"),
        ({"name": "m", "version": "v1", "path": ""}, "absolute path"),
        ({"name": "m", "version": "v1", "path": "../x"}, "leads out of the shared folder"),
        ({"name": "m", "version": "v1", "path": "/nowhere"}, "does not exist"),
        ({"name": "m@2", "version": "v1", "path": "/x"}, "'name'"),
    ],
)
def test_a_malformed_deployment_is_a_400_and_changes_nothing(
    gateway: RunningGateway, body: dict[str, str], says: str
) -> None:
    response = gateway.admin("deploy", **body)
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]
    assert gateway.chat().status_code == 200


def test_admin_needs_the_token_of_the_data_directory(gateway: RunningGateway) -> None:
    for path in ("deploy", "stop"):
        assert httpx.post(f"{gateway.url}/admin/{path}", json={}, timeout=TIMEOUT_S).status_code == 401
    wrong = {"Authorization": "Bearer wrong"}
    assert httpx.get(f"{gateway.url}/admin/status", headers=wrong, timeout=TIMEOUT_S).status_code == 401
    assert (gateway.data_dir.gateway / "admin.token").stat().st_mode & 0o777 == 0o600


def test_stop_waits_for_running_requests_and_rejects_new_ones(gateway: RunningGateway, stand_in: StandIn) -> None:
    stand_in.paused = True
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(gateway.chat)
        wait_until(lambda: stand_in.running == 1)
        stopped = pool.submit(gateway.admin, "stop")
        wait_until(lambda: gateway.gateway.admission.endpoint is None)
        stand_in.paused = False
        assert running.result().status_code == 200
        assert stopped.result().json()["state"] == "stopped"
    response = gateway.chat()
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "engine_stopped"


def test_an_upstream_outage_and_its_end_are_detected(
    gateway: RunningGateway, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in.healthy = False
    wait_until(lambda: gateway.health()["engine"] == "restarting")
    assert gateway.chat().json()["error"]["code"] == "engine_restarting"
    refused = deploy(gateway, write_model(tmp_path / "v2", 2))
    assert (refused.status_code, "which does not serve" in refused.text) == (500, True)
    stand_in.healthy = True
    wait_until(lambda: gateway.health()["engine"] == "serving")
    assert gateway.chat().status_code == 200
    assert gateway.health()["restarts"] == 1

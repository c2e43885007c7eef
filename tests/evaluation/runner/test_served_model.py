"""The model that the gateway serves: which one a run means, and what happens when it goes away."""
# pyright: reportPrivateUsage=false

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from spanloop.evaluation.runner import planning, served_model
from spanloop.evaluation.runner.served_model import ServedModel, resolve_model
from spanloop.foundation.errors import ServiceError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.gateway.app import Gateway

from ...gateway.support import TIMEOUT_S, StandIn, serving, wait_until, write_model
from .conftest import ModelsOnly


@pytest.fixture
def gateway(data_dir: DataDir) -> Iterator[ModelsOnly]:
    gateway = ModelsOnly()
    with serving(gateway.app()) as url, data_dir.announce("gateway", url):
        yield gateway


def test_a_model_is_what_is_served_by_its_name_or_its_version(gateway: ModelsOnly, data_dir: DataDir) -> None:
    for asked in ("", "tiny", "tiny@v1"):
        assert resolve_model(data_dir, asked)[1] == "tiny@v1"
    for asked in ("tiny@v2", "other"):
        with pytest.raises(ServiceError, match=f"serves tiny@v1, not {asked}"):
            resolve_model(data_dir, asked)
    gateway.names = ()
    with pytest.raises(ServiceError, match="serves no model, not a model") as caught:
        resolve_model(data_dir, "")
    assert "spanloop models deploy" in caught.value.next_step


def test_a_run_waits_while_nothing_is_served_and_ends_when_another_model_is(
    gateway: ModelsOnly, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_model, "_POLL_S", 0.01)
    monkeypatch.setattr(served_model, "_FRESH_S", 0.0)
    model, told = ServedModel(data_dir, "tiny@v1"), list[str]()
    before = model.wait(lambda: False, told.append)
    assert before is not None
    assert model.is_unchanged(before)
    gateway.restarts += 1
    assert not model.is_unchanged(before)
    assert told == []

    gateway.names = ()
    asked = iter(range(100))
    assert model.wait(lambda: next(asked) > 5, told.append) is None
    assert told == ["waiting for the gateway to serve tiny@v1 (no model is served)"]
    monkeypatch.setattr(served_model, "WAIT_S", 0.05)
    with pytest.raises(ServiceError, match="has not served tiny@v1"):
        model.wait(lambda: False, told.append)
    gateway.names = ("tiny", "tiny@v2")
    with pytest.raises(ServiceError, match="now serves tiny, tiny@v2, and the run is of tiny@v1") as caught:
        model.wait(lambda: False, told.append)
    assert "continues the run" in caught.value.next_step


def test_a_gateway_that_is_gone_is_waited_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_model, "WAIT_S", 0.0)
    model = ServedModel(DataDir(tmp_path).open(), "tiny@v1")
    with pytest.raises(ServiceError, match="it does not run"):
        model.wait(lambda: False, print)


def test_with_api_keys_a_run_and_its_agent_use_the_token_of_the_data_directory(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-service")
    KeyRing(data_dir).create("laptop", [Scope.INGEST])
    model = StandIn(write_model(tmp_path / "v1", 1))
    with serving(model.app()) as upstream:
        gateway = Gateway(GatewaySettings(upstream=upstream), data_dir)
        with serving(gateway.application()) as url, data_dir.announce("gateway", url):
            wait_until(lambda: gateway.admission.endpoint is not None)
            found, served = resolve_model(data_dir, "")
            assert (found.url, served) == (url, "stand-in@external")
            request = planning.RunRequest(run_id="r", tasks="tasks.jsonl", agent="echo")
            environment = planning._environment(data_dir, request, f"{url}/v1", "stand-in@external")
            headers = {"Authorization": f"Bearer {environment['OPENAI_API_KEY']}"}
            body = {"messages": [{"role": "user", "content": "hi"}]}
            chat = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=TIMEOUT_S)
    assert chat.status_code == 200
    other = request.model_copy(update={"base_url": "http://x/v1"})
    elsewhere = planning._environment(data_dir, other, "http://x/v1", "m")
    assert elsewhere["OPENAI_API_KEY"] == "sk-of-another-service"


def test_an_agent_gets_no_password_of_a_database(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPANLOOP_CLICKHOUSE_URL", "SPANLOOP_CONTROL_URL_FILE", "SPANLOOP_COLLECTOR_URL"):
        monkeypatch.setenv(name, "http://ann:secret@host")
    request = planning.RunRequest(run_id="r", tasks="tasks.jsonl", agent="echo", base_url="http://x/v1")
    environment = planning._environment(data_dir, request, "http://x/v1", "m")
    assert [name for name, value in environment.items() if "secret" in value] == ["SPANLOOP_COLLECTOR_URL"]

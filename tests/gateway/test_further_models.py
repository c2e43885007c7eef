"""Models and adapters that are served by name beside the first model, on the gateway's own engines."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.gateway.served_models.engine_room import check_memory, free_gpus

from .child_engine import write_serving_environment
from .support import TIMEOUT_S, RunningGateway, wait_until, write_model

Start = Callable[..., RunningGateway]


@pytest.fixture(autouse=True)
def serving_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    return write_serving_environment(tmp_path / "serving", "vllm-0.33.0", monkeypatch)


def write_adapter(folder: Path, number: int, rank: int = 8) -> Path:
    write_model(folder, number)
    (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
    return folder


def deploy(
    gateway: RunningGateway, label: str, path: Path, adapter: Path | None = None, **fields: Any
) -> httpx.Response:
    name, _, version = label.partition("@")
    body = {
        "name": name,
        "version": version,
        "path": str(path),
        "adapter": str(adapter or ""),
        "tokenizer": f"t-{name}",
    }
    return gateway.admin("deploy", **body, **fields)


def answer(gateway: RunningGateway, **fields: Any) -> tuple[str, int]:
    """The version that answered, and the number of the weights that sampled."""
    response = gateway.chat(**fields, return_token_ids=True)
    assert response.status_code == 200, response.text
    document = response.json()
    return document["model"], document["choices"][0]["token_ids"][0] - 1000


def served(gateway: RunningGateway) -> list[str]:
    models = httpx.get(f"{gateway.url}/v1/models", timeout=TIMEOUT_S).json()["data"]
    return [model["id"] for model in models if "@" in model["id"]]


def test_models_on_engines_of_their_own_are_swapped_and_stopped_by_name(
    start_gateway: Start, tmp_path: Path, serving_folder: Path
) -> None:
    first, other, newer = (write_model(tmp_path / f"m{number}", number) for number in (1, 2, 3))
    gateway = start_gateway()
    assert deploy(gateway, "office@v1", first).status_code == 200
    assert deploy(gateway, "support@v1", other, beside=True).json()["method"] == "start"
    assert served(gateway) == ["office@v1", "support@v1"]
    names = ("office", "support", "support@v1", "policy")
    assert [answer(gateway, model=name) for name in names] == [
        ("office@v1", 1),
        ("support@v1", 2),
        ("support@v1", 2),
        ("office@v1", 1),
    ]
    assert answer(gateway) == ("office@v1", 1)
    assert gateway.chat(model="third").status_code == 404
    # an engine has the GPU that the first model leaves
    assert {line.split()[2] for line in (serving_folder / "calls").read_text().splitlines()} == {"0,1", "1"}
    refused = deploy(gateway, "third@v1", newer, beside=True)
    assert refused.status_code == 400
    assert "third@v1 needs 1 GPU" in refused.json()["error"]["message"]
    # a version of a model that is served replaces it, and nothing else
    assert deploy(gateway, "support@v2", newer).json()["method"] == "hot_swap"
    assert served(gateway) == ["office@v1", "support@v2"]
    assert answer(gateway, model="support") == ("support@v2", 3)
    captures = [
        (capture.policy_version, capture.tokenizer, capture.response_token_ids) for capture in gateway.captures()
    ]
    assert ("support@v1", "t-support", [1002]) in captures
    assert captures[-1] == ("support@v2", "t-support", [1003])
    assert gateway.admin("stop", model="support").status_code == 200
    assert served(gateway) == ["office@v1"]
    assert gateway.chat(model="support").status_code == 404
    assert gateway.admin("stop", model="office").status_code == 400
    assert deploy(gateway, "third@v1", newer, beside=True).status_code == 200


def test_adapters_share_the_engine_of_their_base(start_gateway: Start, tmp_path: Path, serving_folder: Path) -> None:
    base, other = write_model(tmp_path / "base", 1), write_model(tmp_path / "other", 9)
    adapters = [write_adapter(tmp_path / f"a{number}", number) for number in (2, 3, 4)]
    gateway = start_gateway(max_adapters=2)
    deploy(gateway, "office@v1", base)
    for name, adapter in zip(("support", "sales"), adapters, strict=False):
        assert deploy(gateway, f"{name}@v1", base, adapter, beside=True).status_code == 200
    assert [answer(gateway, model=name) for name in ("office", "support", "sales")] == [
        ("office@v1", 1),
        ("support@v1", 2),
        ("sales@v1", 3),
    ]
    full = deploy(gateway, "legal@v1", base, adapters[2], beside=True)
    assert "one adapter too many" in full.json()["error"]["message"]
    assert deploy(gateway, "support@v2", base, adapters[2]).json()["method"] == "hot_swap"
    assert answer(gateway, model="support") == ("support@v2", 4)
    assert {capture.policy_version for capture in gateway.captures()} >= {"sales@v1", "support@v1", "support@v2"}
    # the weights of a served adapter stay
    refused = deploy(gateway, "office@v2", other)
    assert refused.status_code == 400
    assert "sales@v1, support@v2" in refused.json()["error"]["message"]
    assert "is no adapter of the weights" in deploy(gateway, "sales@v2", other).json()["error"]["message"]
    assert len({line.split()[0] for line in (serving_folder / "calls").read_text().splitlines()}) == 1
    for name in ("support", "sales"):
        assert gateway.admin("stop", model=name).status_code == 200
    assert deploy(gateway, "office@v2", other).json()["method"] == "restart"


def test_an_adapter_that_cannot_be_loaded_leaves_the_others_as_they_are(start_gateway: Start, tmp_path: Path) -> None:
    base, damaged = write_model(tmp_path / "base", 1), write_adapter(tmp_path / "damaged", 2)
    (damaged / "refused").touch()
    gateway = start_gateway(max_adapters=1, max_lora_rank=8)
    deploy(gateway, "office@v1", base)
    failed = deploy(gateway, "support@v1", base, damaged, beside=True)
    assert failed.status_code == 500
    assert "The other models are served as before." in failed.json()["error"]["message"]
    large = deploy(gateway, "support@v1", base, write_adapter(tmp_path / "large", 2, rank=64), beside=True)
    assert "needs a max_lora_rank of 64; the engines run with 8" in large.json()["error"]["message"]
    assert served(gateway) == ["office@v1"]
    assert answer(gateway, model="office") == ("office@v1", 1)
    assert len(gateway.health()["engines"]) == 1


def test_a_gateway_that_starts_again_serves_all_models_again(start_gateway: Start, tmp_path: Path) -> None:
    base, other = write_model(tmp_path / "base", 1), write_model(tmp_path / "other", 9)
    gateway = start_gateway(max_adapters=1)
    deploy(gateway, "office@v1", base)
    deploy(gateway, "support@v1", base, write_adapter(tmp_path / "a", 2), beside=True)
    deploy(gateway, "large@v1", other, beside=True)
    gateway.stop()
    again = start_gateway(max_adapters=1)
    wait_until(lambda: [engine["state"] for engine in again.health()["engines"]] == ["serving"] * 3)
    assert [answer(again, model=name)[1] for name in ("office", "support", "large")] == [1, 2, 9]


def test_an_upstream_starts_no_engine(start_gateway: Start, upstream: str, tmp_path: Path) -> None:
    gateway = start_gateway(upstream=upstream)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    refused = deploy(gateway, "support@v1", write_model(tmp_path / "m", 2), beside=True)
    assert refused.status_code == 400
    assert "uses upstreams" in refused.json()["error"]["message"]


def test_room_for_another_engine(tmp_path: Path) -> None:
    assert free_gpus("m@v1", 2, ("0", "1", "2"), {"0"}) == ("1", "2")
    with pytest.raises(ConfigurationError, match=r"needs 2 GPUs .*: 3 are visible, and 1 of them are free"):
        free_gpus("m@v1", 2, ("0", "1", "2"), {"0", "2"})
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:    1048576 kB\n")
    (tmp_path / "model.safetensors").write_bytes(b"w")
    with pytest.raises(ConfigurationError, match=r"needs 1.0 GiB of memory .* 1.0 GiB are available"):
        check_memory("m@v1", tmp_path, 1, tmp_path / "meminfo")
    (tmp_path / "model.safetensors").unlink()
    check_memory("m@v1", tmp_path, 1, tmp_path / "meminfo")

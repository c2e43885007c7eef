"""Stale deployments: a job runner that lost its lease cannot replace what the newer one deployed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.gateway.fencing import _MAX_HOLDERS, FencingTokens  # pyright: ignore[reportPrivateUsage]

from .support import RunningGateway, wait_until, write_model


def test_an_older_token_of_the_same_holder_is_refused_also_after_a_restart(
    start_gateway: Callable[..., RunningGateway], upstream: str, tmp_path: Path, data_dir: DataDir
) -> None:
    gateway = start_gateway(upstream=upstream)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    new, old = ({"name": "m", "path": str(write_model(tmp_path / f"v{n}", n)), "version": f"v{n}"} for n in (3, 2))
    assert gateway.admin("deploy", **new, holder="job a", token=2).status_code == 200
    refused = gateway.admin("deploy", **old, holder="job a", token=1)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "stale_token")
    assert "its fencing token is 1, and 2 has deployed" in refused.json()["error"]["message"]
    assert gateway.chat().json()["model"] == "m@v3"

    with pytest.raises(Exception, match="its fencing token is 1"):
        FencingTokens(data_dir).accept({"holder": "job a", "token": 1})
    assert gateway.admin("deploy", **new, holder="job a", token=2).json()["method"] == "unchanged"
    assert gateway.admin("deploy", **old, holder="job b", token=1).status_code == 200
    assert gateway.admin("deploy", **new).status_code == 200, "a person needs no token"


def test_a_token_counts_even_when_its_deployment_fails(gateway: RunningGateway, tmp_path: Path) -> None:
    missing = {"name": "m", "version": "v9", "path": str(tmp_path / "none"), "holder": "job a"}
    assert gateway.admin("deploy", **missing, token=5).status_code == 400
    folder = write_model(tmp_path / "v2", 2)
    stale = gateway.admin("deploy", name="m", version="v2", path=str(folder), holder="job a", token=4)
    assert stale.status_code == 409


@pytest.mark.parametrize("fields", [{"token": "1"}, {"token": -1}, {"token": True}, {"token": 1, "holder": ""}])
def test_what_is_no_token_is_refused(gateway: RunningGateway, tmp_path: Path, fields: dict[str, object]) -> None:
    folder = write_model(tmp_path / "v2", 2)
    body = {"name": "m", "version": "v2", "path": str(folder), "holder": "job a", **fields}
    assert gateway.admin("deploy", **body).status_code == 400
    assert gateway.chat().json()["model"] == "stand-in@external"


def test_holders_are_forgotten_oldest_first(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanloop.gateway.fencing._MAX_HOLDERS", 3)
    assert _MAX_HOLDERS == 1000
    tokens = FencingTokens(data_dir)
    for holder, token in (("a", 1), ("b", 1), ("c", 1), ("a", 2), ("d", 1)):
        tokens.accept({"holder": holder, "token": token})
    assert list(FencingTokens(data_dir)._newest) == ["c", "a", "d"]  # pyright: ignore[reportPrivateUsage]


def test_a_damaged_file_is_reported(data_dir: DataDir) -> None:
    data_dir.write(data_dir.gateway / "fencing_tokens.json", "[1]")
    with pytest.raises(ConfigurationError, match=r"fencing_tokens\.json is damaged"):
        FencingTokens(data_dir)

"""Several URLs of one cluster: parsed, shown without a password, and refused with a reason."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.paths.service_states import service_states
from spanloop.semconv.environment import CLICKHOUSE_CLUSTER_ENV, CLICKHOUSE_URL_ENV
from spanloop.store.client import Address
from spanloop.store.discovery import configured_address, server_address


def test_urls_are_separated_by_commas() -> None:
    address = Address.parse("http://me:a,b@one:8123/spans, http://me:a,b@[::2]/spans", cluster="c")
    assert (address.host, address.port, address.password, address.others) == ("one", 8123, "a,b", (("::2", 8123),))
    assert [server.host for server in address.servers] == ["one", "::2"]
    assert all(server.cluster == "c" and not server.others for server in address.servers)
    assert str(address) == "http://me@one:8123,[::2]:8123/spans"


@pytest.mark.parametrize(
    "other", ["http://me:secret@two/more", "http://you:secret@two/spans", "https://me:secret@two/spans"]
)
def test_urls_that_differ_in_more_than_host_and_port_are_refused(other: str) -> None:
    with pytest.raises(ConfigurationError, match=r"URL 2 is of .*two.*, the first one of .*one") as caught:
        Address.parse(f"http://me:secret@one/spans,{other}")
    assert "secret" not in str(caught.value)


def test_the_environment_names_servers_and_cluster(monkeypatch: pytest.MonkeyPatch, data_dir: DataDir) -> None:
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, "http://me:x@one/spans,http://me:x@two/spans")
    monkeypatch.setenv(CLICKHOUSE_CLUSTER_ENV, "spans")
    address = server_address(data_dir)
    assert (address.cluster, address.others) == ("spans", (("two", 8123),))
    (state, *_) = service_states(data_dir.path)
    assert state.url == "http://one/spans, http://two/spans"


def test_a_cluster_without_a_server_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CLICKHOUSE_CLUSTER_ENV, "spans")
    with pytest.raises(
        ConfigurationError, match="names the cluster 'spans', and SPANLOOP_CLICKHOUSE_URL names no server"
    ):
        configured_address()
    with pytest.raises(ConfigurationError, match="names no server"):
        server_address(DataDir(tmp_path))

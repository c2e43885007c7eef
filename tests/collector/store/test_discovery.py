"""Discovery of the store: a URL, the running embedded server, a server started for it, or a clear error."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from spanloop.embedded_clickhouse.lock import choose_port, is_locked, server_lock
from spanloop.foundation.errors import (
    AlreadyRunningError,
    ConfigurationError,
    DataDirectoryError,
    NotRunningError,
    StoreError,
)
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import connect
from spanloop.store.client import Address
from spanloop.store.client_errors import store_errors


def with_password(address: Address) -> str:
    return f"http://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"


def test_a_url_is_used_and_its_database_made(
    address: Address, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, with_password(address))
    with connect(data_dir) as store:
        assert store.database == address.database
        assert store.query("store_counts").height > 10
    assert not data_dir.clickhouse.exists()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8123",
        "tcp://localhost:9000",
        "http://",
        "http://host:port/db",
        "http://h:99999/db",
        "http://h/a/b",
        "http://h/db?x=1",
        "http://h/a`b",
        "clickhouse",
    ],
)
def test_an_unusable_url_is_refused_before_anything_is_sent(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    with pytest.raises(ConfigurationError, match="ClickHouse URL is invalid") as caught:
        connect(data_dir)
    assert CLICKHOUSE_URL_ENV in caught.value.next_step


def test_an_unreachable_url_is_named_in_the_error(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, "http://somebody:hidden@127.0.0.1:1/db")
    with pytest.raises(StoreError, match=r"unreachable while connecting to http://somebody@127\.0\.0\.1:1/db") as error:
        connect(data_dir)
    assert "hidden" not in str(error.value)


def test_parts_of_a_url() -> None:
    address = Address.parse("https://an%40user:p%2Fw@[::1]:8443/my%20db")
    assert address == Address("https", "::1", 8443, "an@user", "p/w", "my db")
    assert str(address) == "https://an%40user@[::1]:8443/my%20db"
    assert "p/w" not in repr(address)
    assert Address.parse("http://h") == Address("http", "h", 8123, "default", "", "spanloop")
    assert replace(Address.parse("https://h"), scheme="http").port == 8443


def test_without_a_server_the_next_step_is_up(data_dir: DataDir) -> None:
    with pytest.raises(NotRunningError) as caught:
        connect(data_dir)
    assert str(caught.value).splitlines() == [
        f"No ClickHouse runs for the data directory {data_dir.path}.",
        f"  next: Start it with: spanloop up --data-dir {data_dir.path}; or set {CLICKHOUSE_URL_ENV}.",
    ]


@pytest.mark.slow
def test_a_started_server_lives_as_long_as_the_store(data_dir: DataDir) -> None:
    with connect(data_dir, start=True) as store:
        assert data_dir.running("clickhouse") is not None
        with connect(data_dir) as second, connect(data_dir, start=True) as third:
            assert second.url == third.url == store.url
        assert not store.query("store_counts").is_empty()
    assert data_dir.running("clickhouse") is None


@pytest.mark.slow
def test_two_that_start_at_once_share_one_server(data_dir: DataDir) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(partial(connect, start=True), [data_dir] * 2)
    try:
        assert first.url == second.url
        assert not first.query("store_counts").is_empty()
        assert not second.query("store_counts").is_empty()
    finally:
        first.close()
        second.close()
    assert data_dir.running("clickhouse") is None


def test_another_layout_is_refused_before_a_server_starts(data_dir: DataDir) -> None:
    data_dir.version_file.write_text(json.dumps({"layout": 2}))
    with pytest.raises(DataDirectoryError, match="has layout 2"):
        connect(data_dir, start=True)
    assert not data_dir.clickhouse.exists()


@pytest.mark.slow
def test_a_stale_run_file_is_ignored(data_dir: DataDir) -> None:
    stale = json.dumps({"url": "http://127.0.0.1:1", "pid": os.getpid()})
    data_dir.write(data_dir.run / "clickhouse.json", stale)
    with pytest.raises(NotRunningError):
        connect(data_dir)
    with connect(data_dir, start=True) as store:
        assert not store.query("store_counts").is_empty()


def test_a_server_that_hangs_is_a_clear_error(data_dir: DataDir) -> None:
    data_dir.write(data_dir.clickhouse_secret, "secret")
    announced = data_dir.announce("clickhouse", "http://127.0.0.1:1")
    with server_lock(data_dir), announced, pytest.raises(StoreError, match="unreachable"):
        connect(data_dir)


def test_a_missing_password_is_a_clear_error(data_dir: DataDir) -> None:
    with server_lock(data_dir), data_dir.announce("clickhouse", "http://127.0.0.1:1"):
        with pytest.raises(DataDirectoryError, match="password of the embedded ClickHouse cannot be read"):
            connect(data_dir)
        data_dir.clickhouse_secret.touch()
        with pytest.raises(DataDirectoryError, match="is empty"):
            connect(data_dir)


def test_is_locked_while_the_lock_is_held(data_dir: DataDir) -> None:
    assert not is_locked(data_dir)
    with server_lock(data_dir):
        assert is_locked(data_dir)
        with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}"), server_lock(data_dir):
            pass
    assert not is_locked(data_dir)


def test_the_previous_port_is_chosen_if_it_is_free(data_dir: DataDir) -> None:
    port = choose_port(data_dir, 0)
    assert choose_port(data_dir, 0) == port
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert choose_port(data_dir, 0) != port
    (data_dir.clickhouse_conf / "port").write_text("nonsense")
    assert 0 < choose_port(data_dir, 0) < 65536


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (
            ValueError("Response ended prematurely"),
            "The response to reading much was cut off: Response ended prematurely.",
        ),
        (None, "ClickHouse is unreachable while reading much"),
        (ConnectionResetError(104, "Connection reset by peer"), "ClickHouse is unreachable while reading much"),
    ],
)
def test_a_truncated_response_is_not_a_lost_connection(cause: Exception | None, message: str) -> None:
    with pytest.raises(StoreError, match=message), store_errors("reading much"):
        raise OperationalError("Unexpected Http Driver Exception") from cause


@pytest.mark.parametrize(
    ("text", "is_transient"),
    [
        ("Attempt to read after eof: while receiving packet from ch2:9000: While executing Remote.", True),
        ("Attempt to read after eof: (in file/uri part.parquet)", False),
    ],
)
def test_a_query_that_a_dying_server_cuts_off_may_be_repeated(text: str, *, is_transient: bool) -> None:
    with pytest.raises(StoreError) as caught, store_errors("reading much"):
        raise DatabaseError(text, code=32)
    assert caught.value.is_transient is is_transient

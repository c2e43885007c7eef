"""The embedded server as a process: who gets in, who may start it, what it leaves behind, and what it survives."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from spanloop.embedded_clickhouse.config import default_memory_cap_bytes
from spanloop.embedded_clickhouse.server import load_extension
from spanloop.foundation.errors import ConfigurationError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address

from ...ports import free_port

CAP_BYTES = 600 << 20


def command(path: Path, *arguments: str) -> list[str]:
    return [
        *(sys.executable, "-m", "spanloop.embedded_clickhouse.server", "--data-dir", str(path)),
        *("--memory-cap-bytes", str(CAP_BYTES), *arguments),
    ]


def run_to_its_end(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(path, *arguments), capture_output=True, text=True, timeout=60, check=False)


def wait_until_it_answers(data_dir: DataDir, process: subprocess.Popen[str]) -> None:
    while (service := data_dir.running("clickhouse")) is None or service.pid != process.pid:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)


@contextmanager
def serving(path: Path, *arguments: str) -> Generator[tuple[DataDir, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        command(path, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            wait_until_it_answers(DataDir(path), process)
            yield DataDir(path), process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataDir, subprocess.Popen[str]]]:
    """One server for the tests that only look at it."""
    with serving(tmp_path_factory.mktemp("embedded")) as both:
        yield both


REFUSED = re.compile(
    "ACCESS_DENIED|QUOTA_EXCEEDED|SETTING_CONSTRAINT_VIOLATION|MEMORY_LIMIT_EXCEEDED|TOO_LARGE_ARRAY_SIZE"
)


def ask_as_default(address: Address, sql: str) -> str:
    request = urllib.request.Request(f"http://{address.host}:{address.port}/", sql.encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_a_second_server_on_the_directory_gets_one_clear_error(served: tuple[DataDir, subprocess.Popen[str]]) -> None:
    data_dir, process = served
    second = run_to_its_end(data_dir.path)
    assert second.returncode == 3
    assert second.stderr.splitlines() == [
        f"An embedded ClickHouse already runs on {data_dir.path} (process {process.pid}).",
        f"  next: Use it, or stop it with: kill {process.pid}",
    ]


def test_a_taken_port_gets_one_clear_error(served: tuple[DataDir, subprocess.Popen[str]], tmp_path: Path) -> None:
    port = embedded_address(served[0]).port
    second = run_to_its_end(tmp_path / "other", "--port", str(port))
    assert second.returncode == 3
    assert second.stderr.startswith(f"Port {port} on 127.0.0.1, requested for the embedded ClickHouse, is in use")
    assert not (tmp_path / "other" / "run" / "clickhouse.json").exists()


def test_a_port_taken_in_between_gets_one_clear_error(
    served: tuple[DataDir, subprocess.Popen[str]], tmp_path: Path
) -> None:
    port = embedded_address(served[0]).port
    code = (
        "import sys; from spanloop.embedded_clickhouse import server as embedded\n"
        f"embedded.choose_port = lambda *_: {port}\n"
        "code = embedded.main(['--data-dir', sys.argv[1]])\n"
        "embedded.os._exit(code)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode == 3
    assert completed.stderr.startswith(
        f"Port {port} on 127.0.0.1 was taken by another process while the embedded ClickHouse started.\n  next:"
    )


def test_another_program_on_the_data_gets_one_clear_error(tmp_path: Path) -> None:
    code = (
        "import sys; from spanloop.embedded_clickhouse.server import load_extension\n"
        "print('loaded', flush=True)\n"
        "load_extension().query('SELECT sleepEachRow(1) FROM numbers(60) SETTINGS max_block_size = 1, "
        "function_sleep_max_microseconds_per_block = 0', 'TabSeparated', path=sys.argv[1])"
    )
    data_dir = DataDir(tmp_path).open()
    with subprocess.Popen([sys.executable, "-c", code, str(data_dir.clickhouse)], stdout=subprocess.PIPE) as other:
        while not (data_dir.clickhouse / "status").exists():
            time.sleep(0.02)
        second = run_to_its_end(tmp_path)
        other.kill()
    assert second.returncode == 3
    assert second.stderr.startswith(f"Another program has {data_dir.clickhouse} open: 76. DB::Exception: Cannot lock")


def test_another_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "version.json").write_text(json.dumps({"layout": 99, "spanloop": "9.0"}))
    completed = run_to_its_end(tmp_path)
    assert completed.returncode == 4
    assert "has layout 99, created by spanloop 9.0" in completed.stderr
    assert not (tmp_path / "clickhouse").exists()


def test_its_files_keep_the_password(served: tuple[DataDir, subprocess.Popen[str]]) -> None:
    data_dir, process = served
    secret = data_dir.clickhouse_secret.read_text()
    assert len(secret) >= 32
    assert data_dir.clickhouse_secret.stat().st_mode & 0o777 == 0o600
    for path in data_dir.path.rglob("*"):
        if path.is_file() and path != data_dir.clickhouse_secret and not path.is_relative_to(data_dir.clickhouse):
            assert secret not in path.read_text(errors="replace"), path
    assert secret not in " ".join(psutil.Process(process.pid).cmdline())
    assert secret not in " ".join(psutil.Process(process.pid).environ().values())


def test_it_listens_on_the_loopback_only(served: tuple[DataDir, subprocess.Popen[str]]) -> None:
    listening = [
        connection.laddr
        for connection in psutil.Process(served[1].pid).net_connections("all")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert [(address.ip, address.port) for address in listening] == [("127.0.0.1", embedded_address(served[0]).port)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM spanloop.secrets",
        "SHOW TABLES FROM spanloop",
        "CREATE TABLE default.a (a String) ENGINE = Memory",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        "SELECT * FROM system.users",
        "KILL QUERY WHERE 1",
        "DROP DATABASE spanloop",
        "SYSTEM STOP LISTEN HTTP",
        "SELECT count() FROM system.numbers",
        "SELECT count() FROM numbers(1000000000000)",
        "SET max_concurrent_queries_for_user = 0",
        "SELECT 1 SETTINGS max_concurrent_queries_for_user = 0",
        "SELECT length(range(100000000))",
    ],
)
def test_without_the_password_nothing_can_be_read_or_made(
    served: tuple[DataDir, subprocess.Popen[str]], sql: str
) -> None:
    address = embedded_address(served[0])
    owner = Connection(address, database="default")
    owner.command("CREATE DATABASE IF NOT EXISTS spanloop", doing="preparing")
    owner.command("CREATE TABLE IF NOT EXISTS spanloop.secrets (a String) ENGINE = Memory", doing="preparing")
    owner.command("INSERT INTO spanloop.secrets VALUES ('hidden')", doing="preparing")
    answer = ask_as_default(address, sql)
    assert REFUSED.search(answer) or answer == "", answer
    assert owner.query("SELECT a FROM spanloop.secrets", doing="checking")["a"].to_list()[0] == "hidden"
    owner.close()


def test_a_query_over_the_memory_cap_fails_and_the_server_stays(
    served: tuple[DataDir, subprocess.Popen[str]],
) -> None:
    connection = Connection(embedded_address(served[0]), database="default")
    with pytest.raises(StoreError, match="code 241") as refused:
        connection.query(
            "SELECT length(groupArray(toString(number))) AS n FROM numbers(200000000)", doing="eating memory"
        )
    assert "--memory-cap-bytes" in refused.value.next_step
    assert connection.query("SELECT 1 AS one", doing="asking again")["one"].to_list() == [1]
    assert psutil.Process(served[1].pid).memory_info().rss < 2 * CAP_BYTES
    connection.close()


def test_it_keeps_freed_memory_for_the_next_block(served: tuple[DataDir, subprocess.Popen[str]]) -> None:
    connection = Connection(embedded_address(served[0]), database="default")
    stats = connection.query("SELECT * FROM system.jemalloc_stats", doing="reading").item()
    connection.close()
    assert "opt.dirty_decay_ms: 60000 " in stats
    assert "opt.oversize_threshold: 0\n" in stats


def test_merges_wait_for_ten_parts(served: tuple[DataDir, subprocess.Popen[str]]) -> None:
    connection = Connection(embedded_address(served[0]), database="default")
    sql = "SELECT value FROM system.merge_tree_settings WHERE name = 'merge_selector_base'"
    assert connection.query(sql, doing="reading").item() == "10"
    connection.close()


def test_it_compiles_no_expression_and_looks_for_work_seldom(served: tuple[DataDir, subprocess.Popen[str]]) -> None:
    connection = Connection(embedded_address(served[0]), database="default")
    names = "('compile_expressions', 'compile_aggregate_expressions', 'compile_sort_description')"
    compiling = f"SELECT DISTINCT value FROM system.settings WHERE name IN {names}"
    assert connection.query(compiling, doing="reading").item() == "0"
    waking = "SELECT value FROM system.server_settings WHERE name = 'memory_worker_period_ms'"
    assert connection.query(waking, doing="reading").item() == "1000"
    connection.close()


def test_it_logs_warnings_only(served: tuple[DataDir, subprocess.Popen[str]]) -> None:
    log = (served[0].clickhouse_conf / "clickhouse.log").read_text()
    assert "<Trace>" not in log
    assert "<Debug>" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as (data_dir, process):
        process.send_signal(number)
        assert process.wait(60) == 0
        assert not (data_dir.run / "clickhouse.json").exists()


def test_a_signal_while_it_starts_is_not_lost(tmp_path: Path) -> None:
    process = subprocess.Popen(command(tmp_path), stderr=subprocess.PIPE, text=True)
    lock = tmp_path / "clickhouse.conf" / "lock"
    while not (lock.exists() and lock.read_text()):
        time.sleep(0.005)
    process.terminate()
    output = process.communicate(timeout=60)
    assert process.returncode == 0, output


def test_a_supervised_server_stops_at_the_end_of_standard_input(tmp_path: Path) -> None:
    with serving(tmp_path, "--supervised") as (_, process):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def test_an_unsupervised_server_ignores_the_end_of_standard_input(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, process):
        assert process.stdin is not None
        process.stdin.close()
        time.sleep(0.5)
        assert process.poll() is None


def test_rows_are_kept_after_a_restart_on_the_same_port(tmp_path: Path) -> None:
    with serving(tmp_path) as (data_dir, process):
        first = embedded_address(data_dir)
        connection = Connection(first, database="default")
        connection.command("CREATE TABLE kept (a String) ENGINE = MergeTree ORDER BY a", doing="preparing")
        connection.command("INSERT INTO kept VALUES ('x')", doing="preparing", settings={"async_insert": "0"})
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert data_dir.running("clickhouse") is None
    with serving(tmp_path) as (data_dir, _):
        assert embedded_address(data_dir) == first
        assert connection.query("SELECT a FROM kept", doing="reading")["a"].to_list() == ["x"]
    connection.close()


def test_its_process_loads_neither_polars_nor_the_client_nor_a_second_engine() -> None:
    code = "import sys, spanloop.embedded_clickhouse.server; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"polars", "pyarrow", "clickhouse_connect", "chdb", "_chdb"} & set(loaded.stdout.split())


def test_the_default_cap_is_a_share_of_the_memory() -> None:
    assert 512 << 20 <= default_memory_cap_bytes() <= min(4 << 30, max(512 << 20, psutil.virtual_memory().total // 4))


def test_a_missing_wheel_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(_name: str) -> None: ...

    monkeypatch.setattr("importlib.util.find_spec", not_found)
    with pytest.raises(ConfigurationError, match="needs the wheel chdb-core") as missing:
        load_extension()
    assert "pip install '/path/to/spanloop[server]'" in missing.value.next_step


def test_sigstop_does_not_end_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as (data_dir, process):
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.8)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.2)
        assert process.poll() is None
        service = data_dir.running("clickhouse")
        assert service is not None
        assert service.pid == process.pid


def address_beyond_loopback() -> str:
    """An address of this machine at which a client counts as one of another host."""
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family is socket.AF_INET and not address.address.startswith("127."):
                return str(address.address)
    pytest.skip("this machine has no address beyond the loopback")


@pytest.mark.slow
def test_other_hosts_reach_it_with_the_password_of_a_file_only(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a password from a file\n")
    port = free_port()
    arguments = ("--host", "0.0.0.0", "--port", str(port), "--password-file", str(tmp_path / "password"))
    other_address = address_beyond_loopback()
    with serving(tmp_path / "data", *arguments) as (data_dir, _):
        local = embedded_address(data_dir)
        assert (local.host, local.port, local.password) == ("127.0.0.1", port, "a password from a file")
        remote = replace(local, host=other_address)
        Connection(remote, database="default").close()
        with pytest.raises(StoreError, match="Authentication failed"):
            Connection(replace(remote, password="wrong"), database="default")
        for sql in (
            "SELECT count() FROM system.users",
            "SELECT count() FROM system.numbers",
            "SYSTEM STOP LISTEN HTTP",
        ):
            assert REFUSED.search(ask_as_default(remote, sql)), sql
    short = tmp_path / "short"
    short.write_text("short")
    refused = run_to_its_end(tmp_path / "other", "--password-file", str(short))
    assert (refused.returncode, "holds no usable password" in refused.stderr) == (2, True)

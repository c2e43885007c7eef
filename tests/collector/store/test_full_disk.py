"""A disk that fills up under the embedded server: clear errors, and nothing acknowledged is lost.

The disk is a small tmpfs in a mount namespace of its own; where that is not allowed, the test is skipped.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SIZE_MIB = 48

FILL = """
import json, sys
import polars as pl
from spanloop.foundation.errors import SpanloopError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.store import Store, connect

directory = DataDir(sys.argv[1])
stored = 0
with connect(directory, start=True) as store:
    try:
        for number in range(200):
            noise = pl.Series("value", range(100_000)).hash(number).cast(pl.Float64)
            frame = pl.DataFrame({"job_id": f"{number}", "step": range(len(noise)), "name": "noise", "value": noise})
            stored += store.insert("training_metrics", frame)
    except StoreError as error:
        full = str(error)
    counted = dict(store.query("store_counts").select("table_name", "row_count").iter_rows())["training_metrics"]
try:
    directory.write(directory.path / "large", "x" * (64 << 20))
except SpanloopError as error:
    written = f"{type(error).__name__}: {error}"
print(json.dumps({"full": full, "written": written, "stored": stored, "counted": counted}))
"""


READ = """
import contextlib, sys
from pathlib import Path
from spanloop.foundation.errors import StoreError
from spanloop.foundation.paths import DataDir
from spanloop.store import connect
from spanloop.store.discovery import embedded_address
from spanloop.store.client import Connection

directory = DataDir(sys.argv[1])
with connect(directory, start=True) as store:
    with Path(sys.argv[1], "ballast").open("wb", buffering=0) as file:
        for size_bytes in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size_bytes)
    assert store.query("store_counts").height > 10
    connection = Connection(embedded_address(directory))
    try:
        connection.query("SELECT randomString(8) FROM numbers(3000000)", doing="reading much")
    except StoreError as error:
        print(error)
    connection.close()
"""


def on_a_small_disk(path: Path, code: str) -> subprocess.CompletedProcess[str]:
    script = 'mount -t tmpfs -o size=%dm tmpfs "$0" || exit 77; exec "$1" -c "$2" "$0"' % SIZE_MIB  # noqa: UP031
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(path), sys.executable, code],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    try:
        tried = on_a_small_disk(tmp_path, "")
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if tried.returncode:
        pytest.skip(f"mount namespaces are not allowed here: {tried.stderr.strip()}")
    return tmp_path


def test_a_full_disk_is_reported_and_acknowledged_rows_are_kept(small_disk: Path) -> None:
    completed = on_a_small_disk(small_disk, FILL)
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert "ClickHouse rejected inserting 100000 rows into 'training_metrics'" in result["full"]
    assert "Free space on ClickHouse's disk" in result["full"]
    assert result["stored"] >= 100_000
    assert result["counted"] == result["stored"]
    assert result["written"].startswith("DataDirectoryError: No space is left for the data directory")


def test_a_full_disk_can_be_read_and_a_truncated_response_is_an_error(small_disk: Path) -> None:
    completed = on_a_small_disk(small_disk, READ)
    assert completed.returncode == 0, completed.stderr
    assert "The response to reading much was cut off" in completed.stdout
    assert "Free space on ClickHouse's disk" in completed.stdout


def test_a_server_on_a_full_disk_does_not_start(small_disk: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from spanloop.foundation.paths import DataDir; from spanloop.embedded_clickhouse import server as embedded\n"
        "DataDir(sys.argv[1]).open()\n"
        "with Path(sys.argv[1], 'ballast').open('wb', buffering=0) as file:\n"
        "    try:\n"
        "        while True: file.write(b'x' * 4096)\n"
        "    except OSError: pass\n"
        "sys.exit(embedded.main(['--data-dir', sys.argv[1]]))"
    )
    completed = on_a_small_disk(small_disk, code)
    assert completed.returncode == 4, completed.stderr
    assert completed.stderr.startswith("No space is left for the data directory")
    assert "next: Free disk space" in completed.stderr

"""The data directory: who may open it, what it refuses, and what a run file says."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir, disk_error, write_atomically
from spanloop.foundation.paths.directory import LAYOUT
from spanloop.semconv.environment import DATA_DIR_ENV


def test_a_new_directory_is_made_private_and_versioned(tmp_path: Path) -> None:
    opened = DataDir(tmp_path / "a" / "b").open()
    assert json.loads(opened.version_file.read_text())["layout"] == LAYOUT
    assert opened.path.stat().st_mode & 0o777 == 0o700
    assert opened.run.is_dir()
    assert opened.logs.is_dir()


def test_the_constructor_does_not_access_the_disk(tmp_path: Path) -> None:
    DataDir(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_opening_again_changes_nothing(data_dir: DataDir) -> None:
    before = data_dir.version_file.stat()
    DataDir(data_dir.path).open()
    after = data_dir.version_file.stat()
    # Not the time of access, which reading changes.
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_the_environment_names_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_DIR_ENV, str(tmp_path / "there"))
    assert DataDir().path == tmp_path / "there"


def test_relative_paths_and_home_are_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))
    assert DataDir("x").path == tmp_path / "x"
    assert DataDir("~/x").path == tmp_path / "somebody" / "x"


@pytest.mark.parametrize("layout", [0, LAYOUT + 1])
def test_another_layout_is_refused_with_the_version_it_needs(tmp_path: Path, layout: int) -> None:
    (tmp_path / "version.json").write_text(json.dumps({"layout": layout, "spanloop": "9.8.7"}))
    with pytest.raises(
        DataDirectoryError, match=rf"has layout {layout}, created by spanloop 9\.8\.7.*reads layout 1"
    ) as refused:
        DataDir(tmp_path).open()
    assert "Use spanloop 9.8.7: pip install /path/to/spanloop" in refused.value.next_step


@pytest.mark.parametrize("text", ["", "{", "[]", '{"layout": "new"}', "{}", "null", "\x00"])
def test_a_broken_version_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "version.json").write_text(text)
    with pytest.raises(DataDirectoryError, match=r"not a version file of spanloop: got .* expected"):
        DataDir(tmp_path).open()


def test_data_without_a_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    with pytest.raises(DataDirectoryError, match=r"has no version\.json but holds spool"):
        DataDir(tmp_path).open()
    assert not (tmp_path / "version.json").exists()


def test_services_that_start_together_open_it_together(tmp_path: Path) -> None:
    def open_and_fill(_: int) -> None:
        opened = DataDir(tmp_path / "new").open()
        opened.spool.mkdir(exist_ok=True)

    for _ in range(20):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(open_and_fill, range(8)))
        shutil.rmtree(tmp_path / "new")


def test_foreign_files_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    DataDir(tmp_path).open()


def test_a_file_at_the_path_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirectoryError, match="a file is in its place"):
            DataDir(path).open()


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/sys/kernel").is_dir(), reason="needs a read-only place")
def test_a_read_only_directory_is_an_error() -> None:
    with pytest.raises(DataDirectoryError, match=r"/sys/kernel/spanloop (is not writable|cannot be)"):
        DataDir("/sys/kernel/spanloop").open()


def with_file_size_limit(limit_bytes: int, code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` where no file may grow over the limit: a full disk, as far as write() can tell."""
    prelude = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", prelude + code], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    code = f"from spanloop.foundation.paths import DataDir; DataDir({str(tmp_path / 'full')!r}).open()"
    done = with_file_size_limit(4, code)
    assert "DataDirectoryError: No space is left for the data directory" in done.stderr
    assert "Free disk space" in done.stderr
    assert not (tmp_path / "full" / "version.json").exists()
    assert [path.name for path in (tmp_path / "full").iterdir()] == []


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, r"No space is left.* MiB free"),
        (errno.EDQUOT, r"No space is left"),
        (errno.EROFS, r"not writable by this user"),
        (errno.EACCES, r"not writable by this user"),
        (errno.EIO, r"cannot be used: .*Input/output error"),
    ],
)
def test_every_disk_error_says_what_and_what_next(tmp_path: Path, number: int, message: str) -> None:
    error = disk_error(tmp_path, OSError(number, os.strerror(number)))
    assert re.search(message, str(error))
    assert error.next_step


def test_a_service_is_found_while_it_is_announced(data_dir: DataDir) -> None:
    assert data_dir.running("collector") is None
    with data_dir.announce("collector", "http://127.0.0.1:4318"):
        assert data_dir.running("collector") == ("collector", "http://127.0.0.1:4318", os.getpid())
        assert data_dir.running("gateway") is None
    assert data_dir.running("collector") is None
    assert list(data_dir.run.iterdir()) == []


def test_the_announcement_goes_with_an_error_too(data_dir: DataDir) -> None:
    with pytest.raises(ZeroDivisionError), data_dir.announce("collector", "http://x"):
        raise ZeroDivisionError
    assert data_dir.running("collector") is None


def test_a_dead_process_is_not_running(data_dir: DataDir) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    data_dir.write(data_dir.run / "collector.json", json.dumps({"url": "http://x", "pid": child.pid}))
    assert data_dir.running("collector") is None
    with data_dir.announce("collector", "http://y"):
        assert data_dir.running("collector") is not None


def test_a_successors_announcement_is_not_removed(data_dir: DataDir) -> None:
    with data_dir.announce("collector", "http://mine"):
        data_dir.write(data_dir.run / "collector.json", json.dumps({"url": "http://theirs", "pid": os.getppid()}))
    service = data_dir.running("collector")
    assert service is not None
    assert service.url == "http://theirs"


def test_an_atomic_write_replaces_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    for text in ("one", "zwölf"):
        write_atomically(target, text)
        assert target.read_text(encoding="utf-8") == text
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["file"]

"""A folder that another host wrote: every file is there, complete, and the one that was written."""

import os
from pathlib import Path

import pytest

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import checksums
from spanloop.foundation.paths.checksums import CHECKSUMS_FILE, check_folder, read_checksums, write_checksums


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    (made / "parts").mkdir(parents=True)
    (made / "model.safetensors").write_bytes(b"weights")
    (made / "parts" / "config.json").write_text("{}")
    write_checksums(made)
    return made


def test_a_complete_folder_is_accepted_and_read_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory.json"
    check_folder(folder, memory)
    read: list[Path] = []
    monkeypatch.setattr(checksums, "_sha256", read.append)
    check_folder(folder, memory)
    assert read == []
    memory.write_text("damaged")
    with pytest.raises(DataDirectoryError):
        check_folder(folder, memory)
    assert read != []


def test_a_missing_or_shorter_file_is_named_with_sizes(folder: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    check_folder(folder, memory)
    weights = folder / "model.safetensors"
    weights.write_bytes(b"weig")
    with pytest.raises(DataDirectoryError, match=f"{weights} is not complete: got 4 bytes, expected 7"):
        check_folder(folder, memory)
    weights.unlink()
    with pytest.raises(DataDirectoryError, match=f"{weights} cannot be read: No such file"):
        check_folder(folder, memory)


def test_other_content_of_the_same_size_is_found_although_the_folder_was_checked(folder: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    check_folder(folder, memory)
    weights = folder / "model.safetensors"
    weights.write_bytes(b"weightz")
    os.utime(weights, ns=(1, 1))
    with pytest.raises(DataDirectoryError, match="is not the file that was registered: got SHA-256") as refused:
        check_folder(folder, memory)
    assert "spanloop models list" in refused.value.next_step


def test_a_folder_without_checksums_is_accepted_and_damaged_ones_are_not(folder: Path, tmp_path: Path) -> None:
    (folder / CHECKSUMS_FILE).write_text('{"files": {"a": 3}}')
    with pytest.raises(DataDirectoryError, match="cannot be read"):
        check_folder(folder, tmp_path / "memory.json")
    (folder / CHECKSUMS_FILE).unlink()
    assert read_checksums(folder) is None
    check_folder(folder, tmp_path / "memory.json")

"""``spanloop import`` as a process."""

import json
from pathlib import Path

import pytest

from .support import Run

GOOD = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}], "reward": 1}


@pytest.mark.slow
def test_what_is_good_is_imported_and_what_is_not_is_said(spanloop: Run, tmp_path: Path) -> None:
    path, rejects = tmp_path / "episodes.jsonl", tmp_path / "rejects.jsonl"
    path.write_text("\n".join([json.dumps(GOOD), "{no json", json.dumps({"messages": []})]))
    completed = spanloop("import", str(path), "--rejects", str(rejects))
    assert completed.returncode == 1
    assert f"{path}:2: not_json" in completed.stderr
    assert "3 items: 1 accepted, 2 rejected" in completed.stderr
    assert [json.loads(line)["line"] for line in rejects.read_text().splitlines()] == [2, 3]
    path.write_text(json.dumps(GOOD))
    again = spanloop("import", str(path))
    assert again.returncode == 0
    assert "1 items: 1 accepted, 0 rejected" in again.stderr
    assert again.stdout.split() == ["imported", "new", "already", "there", "conversations", "0", "1",
                                    "spans", "of", "conversations", "0", "2", "scores", "0", "1"]  # fmt: skip


def test_a_path_that_is_not_there_is_said(spanloop: Run, tmp_path: Path) -> None:
    completed = spanloop("import", str(tmp_path / "nothing.jsonl"))
    assert completed.returncode == 2
    assert f"The file {tmp_path / 'nothing.jsonl'} to import does not exist." in completed.stderr

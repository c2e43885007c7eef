"""``spanloop forget``: ask, wait for spooled data, erase, and name what is not erased."""

import json
from pathlib import Path

import pytest

from .support import Run

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
LINE = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}], "reward": 1}


@pytest.mark.slow
def test_it_asks_first_and_then_erases(spanloop_on_store: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps(LINE))
    assert spanloop_on_store("import", str(path)).returncode == 0
    assert spanloop_on_store("scores", "list").stdout.count("import") == 2
    trace = spanloop_on_store("scores", "list").stdout.split("trace ", 1)[1].split()[0]
    refused = spanloop_on_store("forget", "--trace", trace)
    assert refused.returncode == 1
    assert f"Erase trace {trace} for good?" in refused.stderr
    completed = spanloop_on_store("forget", "--trace", trace, "--yes")
    assert completed.returncode == 0
    assert completed.stdout.split()[:6] == ["erased", "count", "traces", "1", "spans", "2"]
    assert spanloop_on_store("scores", "list").stderr.strip() == "no scores"
    assert spanloop_on_store("forget", "--trace", TRACE, "--yes").stdout.split()[:6] == [
        "erased", "count", "traces", "1", "spans", "0",
    ]  # fmt: skip


def test_nobody_is_said(spanloop_on_store: Run) -> None:
    completed = spanloop_on_store("forget", "--yes")
    assert completed.returncode == 2
    assert "No data to forget" in completed.stderr

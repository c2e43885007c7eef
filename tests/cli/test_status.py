"""``spanloop status`` and a store out of reach: what a person sees when nothing is there."""

from pathlib import Path

import pytest

from .support import Run


def test_looking_makes_no_data_directory(spanloop: Run, tmp_path: Path) -> None:
    done = spanloop("status", "--data-dir", str(tmp_path / "nowhere"))
    assert done.returncode == 3
    assert f"there is no data directory {tmp_path / 'nowhere'}" in done.stdout
    assert f"spanloop up --data-dir {tmp_path / 'nowhere'}" in done.stdout
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("host", "said"), [("127.0.0.1:1", "Connection refused"), ("nowhere.invalid:8123", "not known")]
)
def test_a_clickhouse_out_of_reach_is_one_sentence(spanloop: Run, host: str, said: str) -> None:
    done = spanloop("convert", SPANLOOP_CLICKHOUSE_URL=f"http://me:secret@{host}/db")
    assert done.returncode == 5
    what, step = done.stderr.strip().splitlines()[-2:]
    assert what.startswith(f"error: ClickHouse is out of reach while connecting to http://me@{host}/db: ")
    assert what.endswith(f"{said}.")
    assert "SPANLOOP_CLICKHOUSE_URL" in step
    assert "secret" not in done.stderr

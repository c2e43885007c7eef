"""A server that was killed between noting a block and storing it stores the block when it is sent again."""

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.embedded_clickhouse.deduplication_logs import drop_unstored_blocks
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir
from spanloop.store.client import Connection
from spanloop.store.discovery import embedded_address

TABLE = (
    "CREATE TABLE kept (a UInt8) ENGINE = MergeTree ORDER BY a PARTITION BY a % 2 "
    "SETTINGS non_replicated_deduplication_window = 100"
)


def table_with(folder: Path, parts: list[str], *logs: str) -> DataDir:
    """A data directory with one table, of which only the names of its parts and its logs are there."""
    data_dir = DataDir(folder)
    table = data_dir.clickhouse / "store" / "abc" / "abc-def"
    for part in ("detached", "deduplication_logs", *parts):
        (table / part).mkdir(parents=True)
    for number, content in enumerate(logs):
        # 10 comes after 9.
        (table / "deduplication_logs" / f"deduplication_log_{number + 9}.txt").write_text(content)
    return data_dir


def newest_log(data_dir: DataDir) -> str:
    paths = data_dir.clickhouse.glob("store/*/*/deduplication_logs/*.txt")
    return max(paths, key=lambda path: int(path.stem.rpartition("_")[2])).read_text()


def test_a_block_without_a_part_is_dropped_once(tmp_path: Path) -> None:
    parts = ["20261125_1_3_1", "20261125_5_5_0", "tmp_insert_20261125_4_4_0", "delete_tmp_20261126_1_1_0"]
    added = "1\t20261125_2_2_0\ta\n1\t20261125_4_4_0\tb\n", "1\t20261125_5_5_0\tc\n1\t20261126_1_1_0\td\n"
    data_dir = table_with(tmp_path, parts, *added)
    assert drop_unstored_blocks(data_dir) == 2
    assert newest_log(data_dir) == f"{added[1]}2\t20261125_4_4_0\tb\n2\t20261126_1_1_0\td\n"
    assert drop_unstored_blocks(data_dir) == 0


def test_an_incomplete_last_line_is_removed(tmp_path: Path) -> None:
    data_dir = table_with(tmp_path, ["all_1_1_0_7"], "1\tall_1_1_0\ta\n1\tall_2_2")
    assert drop_unstored_blocks(data_dir) == 0
    assert newest_log(data_dir) == "1\tall_1_1_0\ta\n"


def test_a_block_that_was_stored_later_is_kept(tmp_path: Path) -> None:
    log = "1\tall_2_2_0\ta\n2\tall_2_2_0\ta\n1\tall_3_3_0\ta\n"
    data_dir = table_with(tmp_path, ["all_1_1_0", "all_3_3_0"], log)
    assert drop_unstored_blocks(data_dir) == 0
    assert newest_log(data_dir) == log


def test_a_log_that_cannot_be_read_is_an_error_with_its_place(tmp_path: Path) -> None:
    data_dir = table_with(tmp_path, [])
    (data_dir.clickhouse / "store" / "abc" / "abc-def" / "deduplication_logs" / "deduplication_log_1.txt").mkdir()
    with pytest.raises(DataDirectoryError, match="clickhouse"):
        drop_unstored_blocks(data_dir)


@given(lengths=st.lists(st.integers(1, 4), max_size=8), lost=st.sets(st.integers(0, 7)))
def test_blocks_are_dropped_where_no_part_covers_them(lengths: list[int], lost: set[int]) -> None:
    """Merged parts of several lengths, of which some are lost."""
    parts, blocks, lost_blocks = list[str](), 0, 0
    for number, length in enumerate(lengths):
        if number in lost:
            lost_blocks += length
        else:
            parts.append(f"p_{blocks + 1}_{blocks + length}_2")
        blocks += length
    log = "".join(f"1\tp_{block}_{block}_0\tb{block}\n" for block in range(1, blocks + 1))
    with TemporaryDirectory() as folder:
        assert drop_unstored_blocks(table_with(Path(folder), parts, log)) == lost_blocks


def test_a_noted_block_that_was_not_stored_is_accepted_again(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    rows = pl.DataFrame({"a": [1, 2]}, schema={"a": pl.UInt8})
    with EmbeddedClickHouse(data_dir):
        connection = Connection(embedded_address(data_dir), database="default")
        connection.command(TABLE, doing="preparing")
        for _ in range(2):
            connection.insert("kept", rows, token="block")
        assert connection.query("SELECT count() AS n FROM kept", doing="reading")["n"].item() == 2
    # What a kill -9 leaves between the two steps: the block is noted, and its part has its temporary name.
    (part,) = data_dir.clickhouse.glob("store/*/*/1_1_1_0")
    part.rename(part.with_name("tmp_insert_1_1_1_0"))
    with EmbeddedClickHouse(data_dir):
        connection = Connection(embedded_address(data_dir), database="default")
        assert connection.query("SELECT a FROM kept", doing="reading")["a"].to_list() == [2]
        for _ in range(2):
            connection.insert("kept", rows, token="block")
        assert sorted(connection.query("SELECT a FROM kept", doing="reading")["a"].to_list()) == [1, 2]
        connection.close()

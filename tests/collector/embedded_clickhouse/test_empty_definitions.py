"""A full disk has emptied a table's definition: tables without rows are recreated, others are an error."""

from pathlib import Path

import polars as pl
import pytest

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.embedded_clickhouse.empty_definitions import remove_empty_definitions
from spanloop.foundation.errors import DataDirectoryError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.discovery import embedded_address
from spanloop.store.migrate import migrate, migrations, parse

VIEW, EMPTY_TABLE, FULL_TABLE = "scores_from_logs", "evaluations", "training_metrics"
NEXT = len(migrations()) + 1
CHANGES_VIEW = parse(f"{NEXT:04}_view.sql", f"ALTER TABLE {VIEW} MODIFY QUERY SELECT Body AS comment FROM otel_logs;\n")
SCORED = "INSERT INTO otel_logs (Timestamp, EventName, LogAttributes) VALUES (now64(9), 'gen_ai.evaluation.result', {})"


def definition(data_dir: DataDir, table: str) -> Path:
    (path,) = data_dir.clickhouse.glob(f"store/*/*/{table}.sql")
    return path


def score(connection: Connection, score_id: str) -> None:
    attributes = f"map('spanloop.score.id', '{score_id}', 'gen_ai.evaluation.score.value', '1')"
    connection.command(SCORED.format(attributes), doing="inserting a score")


@pytest.mark.slow
def test_tables_without_rows_are_recreated_and_rows_are_kept(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path)
    metric = pl.DataFrame({"job_id": ["a"], "step": [1], "name": ["loss"], "value": [0.5]})
    with EmbeddedClickHouse(data_dir):
        address = embedded_address(data_dir)
        # Stopped between migrations, as on a full disk: the next migration changes the view.
        migrate(address)
        definition(data_dir, VIEW).write_text("")
        lost = rf"has lost the definition of 'scores_from_logs', which .* migration {NEXT}"
        with pytest.raises(StoreError, match=lost):
            migrate(address, [*migrations(), CHANGES_VIEW])
    definition(data_dir, EMPTY_TABLE).write_text("")
    with EmbeddedClickHouse(data_dir):
        with Store.open(address) as store:
            store.insert(FULL_TABLE, metric)
            assert store.query("evaluation_list", evaluation_id="", name="", model="").is_empty()
        connection = Connection(address)
        score(connection, "first")
    definition(data_dir, VIEW).write_text("")
    with EmbeddedClickHouse(data_dir), Store.open(address) as store:
        score(connection, "second")
        scores = connection.query("SELECT score_id FROM scores ORDER BY score_id", doing="reading")
        assert scores["score_id"].to_list() == ["first", "second"]
        assert store.query("training_metrics", job_id="a")["value"].to_list() == [0.5]
        connection.close()
    torn = definition(data_dir, FULL_TABLE)
    torn.write_text("")
    with pytest.raises(DataDirectoryError, match=r"table 'training_metrics' is empty: .* may hold rows"):
        remove_empty_definitions(data_dir)
    assert torn.exists()


@pytest.fixture
def foreign(tmp_path: Path) -> DataDir:
    folder = tmp_path / "clickhouse" / "store" / "abc" / "abcdef"
    folder.mkdir(parents=True)
    (folder / "orders.sql").touch()
    return DataDir(tmp_path)


def test_foreign_tables_are_not_touched(foreign: DataDir) -> None:
    with pytest.raises(DataDirectoryError, match="table 'orders' is empty"):
        remove_empty_definitions(foreign)
    assert definition(foreign, "orders").exists()

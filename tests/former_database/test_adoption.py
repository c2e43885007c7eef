"""A ClickHouse database of the 22 migrations before the initial schema: adopted as it is, or refused."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from spanloop.dashboard.queries import lists
from spanloop.dashboard.view_models.filters import Filters
from spanloop.foundation.errors import StoreError
from spanloop.foundation.former_schemas import OPENING_COMMIT
from spanloop.pipeline.run import run
from spanloop.store import Store
from spanloop.store.adoption import FORMER_CHECKSUMS
from spanloop.store.client import Address, Connection
from spanloop.store.migrate import migrate, migrations
from spanloop.training.dataset.export import select_dataset
from spanloop.training.models.base_model import BaseModelFacts
from spanloop.training.spec.job_spec import JobSpec

from ..collector.store.test_summaries import LISTS

FORMER: Final[Mapping[str, Any]] = json.loads(Path(__file__).with_name("clickhouse.json").read_text(encoding="utf-8"))
JOURNAL: Final = "schema_migrations"
VIEWS: Final = ("CREATE VIEW", "CREATE MATERIALIZED VIEW")
SCHEMA: Final = """
SELECT name, create_table_query AS made FROM system.tables WHERE database = currentDatabase() ORDER BY name
"""


@pytest.fixture
def former(address: Address) -> Address:
    """The stored database, made again."""
    server = Connection(address, database="default")
    server.command(f"CREATE DATABASE `{address.database}`", doing="making a former database")
    server.close()
    connection = Connection(address)
    made: Mapping[str, str] = FORMER["made"]
    for statement in (text for text in made.values() if not text.startswith(VIEWS)):
        connection.command(statement, doing="making a former table")
    # Before the views, which would summarise these rows a second time.
    for table, rows in FORMER["rows"].items():
        if rows:
            lines = "\n".join(json.dumps(row) for row in rows)
            connection.command(f"INSERT INTO {table} FORMAT JSONEachRow\n{lines}", doing="filling a former table")
    for statement in (text for text in made.values() if text.startswith(VIEWS)):
        connection.command(statement, doing="making a former view")
    connection.close()
    return address


def schema(address: Address) -> Mapping[str, str]:
    connection = Connection(address)
    made = dict(connection.query(SCHEMA, doing="listing").iter_rows())
    connection.close()
    return {name: str(statement).replace(address.database, "db") for name, statement in made.items()}


def rows(address: Address) -> Mapping[str, list[str]]:
    connection = Connection(address)
    stored = {
        table: connection.query(
            f"SELECT formatRowNoNewline('JSONEachRow', *) AS row FROM {table} ORDER BY row",
            doing="reading",
            settings={"output_format_json_quote_denormals": "1", "final": "1"},
        )["row"].to_list()
        for table in FORMER["rows"]
    }
    connection.close()
    return stored


def test_an_adopted_database_has_the_schema_of_a_new_one_and_its_rows(former: Address) -> None:
    initial = migrations()[:1]
    made, stored = schema(former), rows(former)
    assert {table: [json.loads(row) for row in found] for table, found in stored.items()} == FORMER["rows"]
    migrate(former, initial)
    new = replace(former, database=f"{former.database}_new")
    migrate(new, initial)
    assert schema(former) == made == schema(new)
    adopted = rows(former)
    assert {table for table in stored if adopted[table] != stored[table]} == {JOURNAL}
    (entry,) = (json.loads(row) for row in set(adopted[JOURNAL]) - set(stored[JOURNAL]))
    assert (entry["version"], entry["name"], entry["checksum"], entry["state"]) == (
        1, "initial", initial[0].checksum, "applied",
    )  # fmt: skip
    assert len(adopted[JOURNAL]) == len(stored[JOURNAL]) + 1
    migrate(former, initial)
    assert rows(former) == adopted
    connection = Connection(former, database="default")
    connection.command(f"DROP DATABASE `{new.database}`", doing="cleaning up")
    connection.close()


def test_the_stored_database_ran_all_former_migrations() -> None:
    applied = [row["checksum"] for row in FORMER["rows"][JOURNAL] if row["state"] == "applied"]
    assert sorted(applied) == sorted(FORMER_CHECKSUMS)


def test_an_adopted_database_is_converted_selected_from_and_shown(former: Address) -> None:
    with Store.open(former) as store:
        assert run(store).episodes == 1  # a former version of the converters made it
        assert run(store).episodes == 0
        span = "INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, SpanAttributes) VALUES "
        connection = Connection(former)
        attributes = "map('gen_ai.operation.name', 'chat', 'gen_ai.request.model', 'tiny', 'error.type', '429')"
        connection.command(f"{span} (now64(9), '{'c' * 32}', '{'1' * 16}', 'chat', {attributes})", doing="sending")
        connection.close()
        assert run(store).episodes == 1
        shown = {name: store.query(name, **{**parameters, **since(parameters)}) for name, parameters in LISTS.items()}
        assert shown["dashboard_totals"]["episodes"].item() == 3
        assert lists.fetch_traces(store, Filters(), "", None).total == 3
        assert shown["evaluation_list"]["evaluation_id"].to_list() == ["test:tiny@v1"]
        assert shown["dead_letter_list"].height == 1
        base = BaseModelFacts("tiny@v1", Path(), 100, 100, "")
        selection = select_dataset(store, JobSpec.of(kind="dr_grpo", base="tiny"), base, lambda _: "")
        assert selection.row_tally.rejected == {"group_too_small": 1, "no_trajectory": 2}


def since(parameters: Mapping[str, object]) -> Mapping[str, object]:
    return {"since_s": 0} if "since_s" in parameters else {}


@pytest.mark.parametrize("state", ["started", ""])
def test_a_database_of_some_former_migrations_is_refused(former: Address, state: str) -> None:
    connection = Connection(former)
    where = f"version > 20 AND state != '{state}'"
    connection.command(f"DELETE FROM {JOURNAL} WHERE {where}", doing="going back to version 20")
    connection.close()
    made, stored = schema(former), rows(former)
    with pytest.raises(StoreError, match="ran 20 of the 22 migrations") as caught:
        migrate(former)
    assert f"Open it once with commit {OPENING_COMMIT}" in caught.value.next_step
    assert (schema(former), rows(former)) == (made, stored)


def test_rows_of_an_older_layout_are_refused(former: Address) -> None:
    connection = Connection(former)
    connection.command("INSERT INTO legacy_transitions (episode_id, revision) VALUES ('e', 1)", doing="filling")
    connection.close()
    stored = rows(former)
    with pytest.raises(StoreError, match="has 1 rows of an older layout in 'legacy_transitions'") as caught:
        migrate(former)
    assert OPENING_COMMIT in caught.value.next_step
    assert rows(former) == stored

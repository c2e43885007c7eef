"""Translate a statement of the schema for one server into the statements of a ClickHouse cluster.

Table ``T`` becomes ``T_shard`` on every server, with the columns, keys and engine of ``T``, and a Distributed table
``T`` over it. So queries and inserts name the same tables in both forms.

A materialized view whose tables are all spread by the same value reads and fills the tables of its shard. Any other
view reads and fills the Distributed tables, so it runs once for a block, on the server that the block was sent to.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from spanloop.foundation.errors import StoreError

from .sharding import CROSSING_VIEWS, SHARDINGS, shard_table

_TABLE_PATH: Final = "/clickhouse/tables/{shard}/{database}/{table}"
"""Path of a replicated table in Keeper. It has no UUID, so that a server that is added later finds it."""
_WINDOW_SECONDS: Final = 604_800
"""Replicated tables forget a deduplication token after this time too; a collector may be down for days."""

_SCHEMA_STATEMENT: Final = re.compile(r"(?:CREATE|ALTER|DROP|RENAME|TRUNCATE|DELETE)\b")
_LINE_COMMENTS: Final = re.compile(r"^(?:\s*--[^\n]*\n)+")
_CREATE_DATABASE: Final = re.compile(r"CREATE DATABASE IF NOT EXISTS (`[^`]+`)$")
_CREATE_TABLE: Final = re.compile(
    r"CREATE TABLE IF NOT EXISTS (\w+)(.*)\n\) ENGINE = (\w+)(?:\((\w*)\))?(.*)$", re.DOTALL
)
_CREATE_VIEW: Final = re.compile(r"CREATE VIEW IF NOT EXISTS (\w+) AS\b(.*)$", re.DOTALL)
_CREATE_MATERIALIZED: Final = re.compile(r"CREATE MATERIALIZED VIEW IF NOT EXISTS (\w+) TO (\w+) AS\b(.*)$", re.DOTALL)
_ALTER: Final = re.compile(r"ALTER TABLE (\w+)(\s.*)$", re.DOTALL)
_ALTER_OF_COLUMN: Final = re.compile(r"\s+(?:ADD|DROP|MODIFY|COMMENT|RENAME|CLEAR) COLUMN\b")
_ALTER_OF_QUERY: Final = re.compile(r"\s+MODIFY QUERY\b(.*)$", re.DOTALL)
_DROP: Final = re.compile(r"DROP (TABLE|VIEW) IF EXISTS (\w+)$")
_RENAME: Final = re.compile(r"RENAME TABLE (\w+) TO (\w+)$")
_TRUNCATE: Final = re.compile(r"TRUNCATE TABLE (?:IF EXISTS )?(\w+)$")
_DELETE: Final = re.compile(r"DELETE FROM (\w+)(\s.*)$", re.DOTALL)
_READ_TABLE: Final = re.compile(r"\b(FROM|JOIN)(\s+)(\w+)\b")
_WINDOW: Final = re.compile(r"\bnon_replicated_deduplication_window = (\d+)")


class Form(StrEnum):
    """The way in which the servers of a cluster come to the same schema."""

    KEEPER = "keeper"
    """The servers have a Keeper: Replicated engines, and each statement once, ``ON CLUSTER``."""
    SERVERS = "servers"
    """They have none: plain engines, and each statement to each server."""
    CLOUD = "cloud"
    """ClickHouse Cloud: plain tables, which the service makes SharedMergeTree; nothing is Distributed."""


class Cluster(NamedTuple):
    """A cluster and the database in it."""

    name: str
    database: str
    form: Form
    shards: int
    servers: int
    """Number of servers, copies included."""

    @property
    def is_sharded(self) -> bool:
        """Whether tables are Distributed."""
        return self.form is not Form.CLOUD

    def rows_table(self, table: str) -> str:
        """Return the name of the table that holds the rows."""
        return shard_table(table) if self.is_sharded and table in SHARDINGS else table


def is_schema_statement(statement: str) -> bool:
    """Return whether a statement changes the schema, or rows in place, and so concerns every shard."""
    return _SCHEMA_STATEMENT.match(_without_comments(statement)) is not None


def cluster_statements(statement: str, cluster: Cluster) -> Sequence[str]:
    """Return the statements that do on a cluster what one statement does on one server, in order.

    Args:
        statement: A statement of a migration, or a named one that changes rows in place.
        cluster: The cluster.

    Raises:
        StoreError: The statement has a form that is not translated.
    """
    text = _without_comments(statement)
    if cluster.form is Form.CLOUD:
        return [_with_replicated_window(text)]
    translated = _translate(text, cluster)
    if translated is None:
        raise StoreError(
            f"A statement cannot be run on the cluster {cluster.name!r}: {text.splitlines()[0][:120]!r} has a form "
            "that spanloop does not translate.",
            next_step="Write it as the migrations do: CREATE TABLE IF NOT EXISTS, ALTER TABLE, DELETE FROM, …",
        )
    return translated


def _translate(text: str, cluster: Cluster) -> Sequence[str] | None:
    for pattern, translate in _FORMS:
        if match := pattern.match(text):
            return translate(match, cluster)
    return None


def _create_database(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    return [f"CREATE DATABASE IF NOT EXISTS {match[1]}{_on_cluster(cluster)}"]


def _create_table(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    table, columns, engine, version, rest = match.groups(default="")
    body = f"{_on_cluster(cluster)}{columns}\n) ENGINE = {_engine(engine, version, cluster)}{_settings(rest, cluster)}"
    return [f"CREATE TABLE IF NOT EXISTS {shard_table(table)}{body}", _distributed(table, cluster)]


def _create_view(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    view = f"CREATE VIEW IF NOT EXISTS {shard_table(match[1])}{_on_cluster(cluster)} AS{_on_shard(match[2])}"
    return [view, _distributed(match[1], cluster)]


def _create_materialized(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    name, target, select = match.groups()
    if name not in CROSSING_VIEWS:
        target, select = shard_table(target), _on_shard(select)
    return [f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name}{_on_cluster(cluster)} TO {target} AS{select}"]


def _alter(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    (table, action), on_cluster = match.groups(), _on_cluster(cluster)
    if query := _ALTER_OF_QUERY.match(action):
        select = query[1] if table in CROSSING_VIEWS else _on_shard(query[1])
        return [f"ALTER TABLE {table}{on_cluster} MODIFY QUERY{select}"]
    on_shard = f"ALTER TABLE {shard_table(table)}{on_cluster}{action}"
    if not _ALTER_OF_COLUMN.match(action):
        return [on_shard]
    return [on_shard, f"ALTER TABLE {table}{on_cluster}{action}"]


def _delete(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    return [f"DELETE FROM {shard_table(match[1])}{_on_cluster(cluster)}{match[2]}"]  # noqa: S608 - of a file of queries


def _truncate(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    return [f"TRUNCATE TABLE IF EXISTS {shard_table(match[1])}{_on_cluster(cluster)}"]


def _drop(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    (kind, name), on_cluster = match.groups(), _on_cluster(cluster)
    if name not in SHARDINGS:
        return [f"DROP {kind} IF EXISTS {name}{on_cluster}"]
    return [f"DROP TABLE IF EXISTS {name}{on_cluster}", f"DROP {kind} IF EXISTS {shard_table(name)}{on_cluster}"]


def _rename(match: re.Match[str], cluster: Cluster) -> Sequence[str]:
    (old, new), on_cluster = match.groups(), _on_cluster(cluster)
    return [
        f"RENAME TABLE IF EXISTS {shard_table(old)} TO {shard_table(new)}{on_cluster}",
        f"DROP TABLE IF EXISTS {old}{on_cluster}",
        _distributed(new, cluster),
    ]


_FORMS: Final = (
    (_CREATE_DATABASE, _create_database),
    (_CREATE_TABLE, _create_table),
    (_CREATE_VIEW, _create_view),
    (_CREATE_MATERIALIZED, _create_materialized),
    (_ALTER, _alter),
    (_DELETE, _delete),
    (_TRUNCATE, _truncate),
    (_DROP, _drop),
    (_RENAME, _rename),
)


def _distributed(table: str, cluster: Cluster) -> str:
    place = f"'{cluster.name}', '{cluster.database}', '{shard_table(table)}', {SHARDINGS[table].key}"
    made_as = f"{table}{_on_cluster(cluster)} AS {shard_table(table)}"
    return f"CREATE TABLE IF NOT EXISTS {made_as} ENGINE = Distributed({place})"


def _engine(engine: str, version: str, cluster: Cluster) -> str:
    if cluster.form is Form.SERVERS:
        return f"{engine}({version})" if version else engine
    arguments = [f"'{_TABLE_PATH}'", "'{replica}'", *filter(None, [version])]
    return f"Replicated{engine}({', '.join(arguments)})"


def _settings(rest: str, cluster: Cluster) -> str:
    return rest if cluster.form is Form.SERVERS else _with_replicated_window(rest)


def _with_replicated_window(text: str) -> str:
    """Return a statement whose deduplication window is that of replicated tables."""
    seconds = f"replicated_deduplication_window_seconds = {_WINDOW_SECONDS}"
    return _WINDOW.sub(rf"replicated_deduplication_window = \1, {seconds}", text)


def _on_shard(select: str) -> str:
    """Return a SELECT that reads the tables of its shard."""

    def replace(match: re.Match[str]) -> str:
        keyword, space, table = match.groups()
        return f"{keyword}{space}{shard_table(table) if table in SHARDINGS else table}"

    return _READ_TABLE.sub(replace, select)


def _on_cluster(cluster: Cluster) -> str:
    return f" ON CLUSTER '{cluster.name}'" if cluster.form is Form.KEEPER else ""


def _without_comments(statement: str) -> str:
    return _LINE_COMMENTS.sub("", statement.lstrip()).strip()

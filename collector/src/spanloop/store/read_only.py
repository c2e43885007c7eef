"""Read the store without the right to change it, within limits, and only the rows of some services.

Invariant: ClickHouse enforces all three. Each statement of a reader runs with ``readonly=1``, under which a statement
can neither write nor change a setting, with limits of rows, bytes, time and memory, and with a filter for each table. A
reader that is limited to services sees no row of a table that does not tell whose it is.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.tables import TABLES
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV

from .client import Address, Connection
from .discovery import server_address
from .migrate import check_schema
from .store import Store

_BY_SERVICE: Final = {
    "otel_traces": "ServiceName",
    "otel_logs": "ServiceName",
    "trace_summaries": "service_name",
    "episodes": "service_name",
    "episode_summaries": "service_name",
    "data_set_episodes": "service_name",
}
_BY_EPISODE: Final = (
    "episode_messages",
    "transition_rows",
    "legacy_transitions",
    "trajectories",
    "failures",
    "step_summaries",
    "failure_summaries",
    "judgements",
)
_OPEN: Final = ("transitions", "schema_migrations")
"""The view, whose tables are filtered, and the journal of the schema."""


class ReadLimits(NamedTuple):
    """Limits of one statement."""

    rows: int = 100_000
    """Largest number of rows of the result."""
    result_bytes: int = 256 * 2**20
    """Largest size of the result, before compression."""
    timeout_s: float = 10.0
    memory_bytes: int = 2**30
    """Most memory that the server uses for the statement."""


DEFAULT_LIMITS: Final = ReadLimits()


def open_reader(data_dir: DataDir, limits: ReadLimits = DEFAULT_LIMITS, services: Sequence[str] = ()) -> Store:
    """Open the store of ``data_dir``, or of ``SPANLOOP_CLICKHOUSE_URL``, for reading; nothing is migrated.

    Args:
        data_dir: The data directory of the embedded server.
        limits: Limits of each statement.
        services: Names of services (``service.name``) whose rows are visible; none means all.

    Raises:
        NotRunningError: No URL is set, and no embedded server runs.
        ConfigurationError: The URL is invalid, or its user may not set limits.
        StoreError: ClickHouse is unreachable, or the schema is not this code's.
    """
    address = server_address(data_dir)
    return Store(address, _settings(address, limits, services))


def _settings(address: Address, limits: ReadLimits, services: Sequence[str]) -> dict[str, str]:
    connection = Connection(address)
    try:
        check_schema(connection, address)
        rows = connection.query(
            "SELECT value FROM system.settings WHERE name = 'readonly'", doing="reading the user's rights"
        )
        rows_table = connection.rows_table
    finally:
        connection.close()
    return reader_settings(address, limits, services, user_readonly=str(rows["value"][0]), rows_table=rows_table)


def reader_settings(
    address: Address,
    limits: ReadLimits,
    services: Sequence[str],
    *,
    user_readonly: str = "0",
    rows_table: Callable[[str], str] = str,
) -> dict[str, str]:
    """Return the settings of every statement of a reader.

    Args:
        address: Names the database.
        limits: The limits.
        services: Services whose rows are visible; none means all.
        user_readonly: The user's own setting ``readonly``.
        rows_table: Returns the name of the table that holds a table's rows, on every shard of a cluster.

    Raises:
        ConfigurationError: The user's ``readonly`` is 1, which admits no limits.
    """
    if user_readonly == "1":
        raise ConfigurationError(
            f"The ClickHouse user {address.user!r} has readonly = 1, so a reader cannot set its limits.",
            next_step=f"Give the user of {CLICKHOUSE_URL_ENV} readonly = 2, which admits settings and no writes.",
        )
    settings = {
        "max_result_rows": str(limits.rows),
        "max_result_bytes": str(limits.result_bytes),
        "result_overflow_mode": "throw",
        "max_execution_time": f"{limits.timeout_s:g}",
        "timeout_overflow_mode": "throw",
        "max_memory_usage": str(limits.memory_bytes),
    }
    if services:
        settings["additional_table_filters"] = _table_filters(address.database, services, rows_table)
    # A user with readonly = 2 may not change this setting, and may not write either.
    return settings if user_readonly == "2" else {**settings, "readonly": "1"}


def _table_filters(database: str, services: Sequence[str], rows_table: Callable[[str], str]) -> str:
    """Return the map of each table's filter. It is a setting, which takes no bound parameters.

    On a cluster every shard filters the rows that it holds; the Distributed tables have none.
    """
    names = ", ".join(_quote(service) for service in services)
    is_theirs = f"service_name IN ({names})"
    episodes = _members(database, "episode_summaries", "episode_id", is_theirs)
    keys = _members(database, "episode_summaries", "episode_key", is_theirs)
    filters = dict.fromkeys(TABLES, "0") | dict.fromkeys(_BY_EPISODE, episodes)
    filters |= {table: f"{column} IN ({names})" for table, column in _BY_SERVICE.items()}
    traces = _members(database, "trace_summaries", "trace_id", is_theirs)
    converted = _members(database, "episode_summaries", "trace_id", is_theirs, selected="arrayJoin(trace_ids)")
    filters["scores"] = f"{traces} OR {converted} OR (episode_key != '' AND {keys})"
    pairs = [
        f"{_quote(f'{database}.{rows_table(table)}')}: {_quote(text)}"
        for table, text in filters.items()
        if table not in _OPEN
    ]
    return "{" + ", ".join(pairs) + "}"


def _members(database: str, table: str, column: str, condition: str, *, selected: str = "") -> str:
    """Return that a column has a value that it, or ``selected``, has in a row of another table."""
    source = f"`{database}`.{table} WHERE {condition}"
    return f"{column} IN (SELECT {selected or column} FROM {source})"  # noqa: S608 - values are quoted


def _quote(text: str) -> str:
    """Return a string literal of ClickHouse."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"

"""Compare what pipelines made of the stored spans with what one undisturbed run makes of them."""

from collections import Counter
from dataclasses import replace

import httpx
import polars as pl

from spanloop.pipeline import run
from spanloop.store import Store
from spanloop.store.client import Address, Connection

SOURCES = ("otel_traces", "otel_logs", "scores", "generations")
CONVERTED = ("episodes", "transitions", "trajectories", "failures")


def spooled(collector_url: str) -> int:
    """Return how many records wait in a collector's spool."""
    try:
        return int(httpx.get(f"{collector_url}/healthz", timeout=5).json()["spool"]["records"])
    except (httpx.HTTPError, ValueError, KeyError):
        return -1


def contents(address: Address) -> list[pl.DataFrame]:
    """Read what was converted, less the numbers of the revisions: they count how often something was rewritten."""
    connection = Connection(address)
    tables = [
        connection.query(
            f"SELECT * EXCEPT (converted_at, revision) FROM {table} FINAL WHERE (episode_id, revision) IN "
            "(SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0) ORDER BY ALL",
            doing="reading what was converted",
        )
        for table in CONVERTED
    ]
    connection.close()
    return tables


def is_equal(actual: list[pl.DataFrame], expected: list[pl.DataFrame]) -> bool:
    """Whether the tables have the same rows."""
    return all(one.equals(other) for one, other in zip(actual, expected, strict=True))


def convert_undisturbed(address: Address) -> list[pl.DataFrame]:
    """Convert the same spans and captures in a database of their own, by one run that nothing disturbs."""
    calm = replace(address, database="undisturbed")
    with Store.open(calm) as store:
        for table in SOURCES:
            columns = ", ".join(f"`{name}`" for name in store.schema(table))
            store.connection.command(
                f"INSERT INTO {table} ({columns}) SELECT {columns} FROM `{address.database}`.{table}",
                doing="copying what was stored",
            )
        run(store)
    return contents(calm)


def captures(address: Address) -> Counter[str]:
    """Count the captures of each answer of the gateway."""
    connection = Connection(address)
    rows = connection.query("SELECT response_id, count() FROM generations GROUP BY 1", doing="counting captures")
    connection.close()
    return Counter({str(response_id): int(count) for response_id, count in rows.iter_rows()})

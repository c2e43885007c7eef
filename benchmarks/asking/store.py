"""A store to ask: the generated spans of the other benchmarks, replaced and deleted episodes, and scores."""

from pathlib import Path
from typing import Final

from queries import FILL_EPISODES, FILLED, STEP_NS

from spanloop.store.client import Connection

from .questions import World

CHOICE: Final = """
SELECT episode_id, extract(message, '[0-9]+') AS seconds FROM failures FINAL
WHERE episode_id IN (SELECT episode_id FROM episodes FINAL WHERE is_deleted = 0) AND cityHash64(episode_id) % 7 = 0
ORDER BY episode_id LIMIT 1
"""
TABLES: Final = ("spans", "zipf_messages", "transition_rows", "failures", "episodes")
MORE_ROWS: Final = Path(__file__).parent / "more_rows.sql"


def fill_to_ask(connection: Connection, episodes: int, end_ns: int) -> None:
    """Fill an empty store with ``episodes`` episodes of ten spans, the last of which starts at ``end_ns``."""
    base_ns = end_ns - episodes * STEP_NS
    settings = {"max_partitions_per_insert_block": "0"}
    for table in TABLES:
        sql = (FILLED / f"{table}.sql").read_text(encoding="utf-8")
        for first in range(0, episodes, FILL_EPISODES):
            values = {"first": first, "episodes": min(FILL_EPISODES, episodes - first)}
            values |= {"base_ns": base_ns, "step_ns": STEP_NS}
            named = {name: value for name, value in values.items() if f"{{{name}:" in sql}
            connection.command(sql, doing=f"filling {table}", parameters=named, settings=settings)
    for number, sql in enumerate(MORE_ROWS.read_text(encoding="utf-8").split(";\n"), start=1):
        connection.command(sql, doing=f"statement {number} of {MORE_ROWS.name}", settings=settings)


def choose_world(connection: Connection, *, start_s: int, end_s: int) -> World:
    """Return what the questions name; the episode is one with a replaced revision and a failure.

    Args:
        connection: To the filled store.
        start_s: Begin of the range of time that some questions name, in seconds since the epoch.
        end_s: Its end.
    """
    episode_id, seconds = connection.query(CHOICE, doing="choosing an episode").row(0)
    return World(start_s, end_s, "babo", str(episode_id), str(seconds))

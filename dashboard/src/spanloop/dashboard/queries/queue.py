"""Episodes to judge: a sample of what the filters of a list match, in an order that a seed decides."""

from spanloop.dashboard.queries.conditions import episode_conditions, parse_words
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store


def fetch_sample(store: Store, filters: Filters, *, size: int, seed: int) -> list[str]:
    """Return ids of ``size`` matching episodes; the same seed samples the same ones of the same episodes."""
    conditions = episode_conditions(filters, parse_words(filters))
    order = f"cityHash64(episode_id, {conditions.bind(seed, 'Int64')})"
    frame = store.connection.query(
        f"SELECT episode_id FROM episode_summaries FINAL WHERE {conditions.sql} "
        f"ORDER BY {order}, episode_id LIMIT {conditions.bind(size, 'UInt32')}",
        doing="sampling episodes to judge",
        parameters=conditions.parameters,
    )
    return frame["episode_id"].to_list()

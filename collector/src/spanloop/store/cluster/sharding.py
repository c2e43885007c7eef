"""The sharding of the store's tables over a ClickHouse cluster.

Invariant: the sharding key of a table is a function of its sorting key, so two rows of which one replaces the other are
on the same shard. ``FINAL``, merges and deduplication tokens then work as on one server. The two tables of spans and
log records are never replaced, and are spread by trace.

Tables with the same `Sharding.by` have equal values of it on the same shard, so they can be joined there.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

SHARD_SUFFIX: Final = "_shard"
"""Table ``T`` of a cluster is Distributed; the rows are in ``T_shard`` of each server."""


class Sharding(NamedTuple):
    """The sharding of one table."""

    by: str
    """Name of the value whose rows are on one shard together, such as ``trace``."""
    key: str
    """The sharding expression of the Distributed table."""


_TRACE: Final = Sharding("trace", "cityHash64(trace_id)")
_EPISODE: Final = Sharding("episode", "cityHash64(episode_id)")
_JOB: Final = Sharding("job", "cityHash64(job_id)")
_EVALUATION: Final = Sharding("evaluation", "cityHash64(evaluation_id)")
_CANARY: Final = Sharding("canary", "cityHash64(canary_id)")

SHARDINGS: Final[Mapping[str, Sharding]] = {
    "otel_traces": Sharding("trace", "cityHash64(TraceId)"),
    # Records without a trace would all be on one shard. Views and joins read records with a trace.
    "otel_logs": Sharding(
        "trace", "if(TraceId = '', cityHash64(ServiceName, toUnixTimestamp64Nano(Timestamp)), cityHash64(TraceId))"
    ),
    "trace_summaries": _TRACE,
    "log_summaries": _TRACE,
    "judgements": _TRACE,
    # Many captures have no trace. generation_id begins with the response id.
    "generations": Sharding("response", "cityHash64(response_id)"),
    "scores": Sharding("score", "cityHash64(score_id)"),
    "dead_letters": Sharding("dead letter", "cityHash64(dead_letter_id)"),
    "episodes": _EPISODE,
    "episode_messages": _EPISODE,
    "transition_rows": _EPISODE,
    "legacy_transitions": _EPISODE,
    "transitions": _EPISODE,
    "trajectories": _EPISODE,
    "failures": _EPISODE,
    "episode_summaries": _EPISODE,
    "step_summaries": _EPISODE,
    "failure_summaries": _EPISODE,
    "replaced_revisions": _EPISODE,
    "pinned_revisions": _EPISODE,
    "data_set_episodes": _EPISODE,
    "evaluation_episodes": _EPISODE,
    "data_sets": Sharding("data set", "cityHash64(data_set_id)"),
    "evaluations": _EVALUATION,
    "evaluation_figures": _EVALUATION,
    "training_samples": _JOB,
    "training_metrics": _JOB,
    "metric_summaries": _JOB,
    "attempts": Sharding("attempt", "cityHash64(run_id, task_id)"),
    "canary_calls": Sharding("canary session", "cityHash64(canary_id, session)"),
    "canary_sessions": _CANARY,
    "shadow_answers": Sharding("shadow answer", "cityHash64(canary_id, response_id)"),
    "pipeline_state": Sharding("name", "cityHash64(name)"),
    "schema_migrations": Sharding("version", "cityHash64(version)"),
}
"""Every table of the store, and the view that reads several of them."""


def shard_table(table: str) -> str:
    """Return the name of the table that holds the rows of a shard."""
    return table + SHARD_SUFFIX


CROSSING_VIEWS: Final = frozenset({"scores_from_logs"})
"""Materialized views whose tables are spread by different values."""

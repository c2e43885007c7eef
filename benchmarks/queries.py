"""How query times grow with the store: every named query of pages, commands and pipeline, at two sizes.

    python benchmarks/queries.py [--quick]

An embedded ClickHouse makes the spans itself (``benchmarks/filled/*.sql``), with the rows that the gateway and the
pipeline would have made of them: 100,000 spans a day, ten to an episode. The second store is ten times as old as the
first: 10 M spans against 1 M; with ``--quick`` 1 M against 100 k. Each query runs with the parameters of a page,
command or pipeline run that looks at the last day. Named baseline: the same query in the smaller store. Besides the
time that passed (``ms``, medians) the server says what CPU time each query took, which other work on the machine
changes less. The last line is ``ratio growth=… cpu=… all_time=… all_time_cpu=…``: the largest growth of a query's
median time, of its CPU time, and the largest among the queries that are asked about all time.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address
from spanloop.store.named_queries import named_query

FILLED: Final = Path(__file__).parent / "filled"
TABLES: Final = (
    "spans", "logs", "generations", "episode_messages", "transition_rows", "trajectories", "failures", "episodes",
    "training_metrics", "evaluations", "evaluation_episodes", "dead_letters",
)  # fmt: skip
STEP_NS: Final = 8_640_000_000
"""From one episode's start to the next one's: ten thousand a day."""
SPANS_PER_EPISODE: Final = 10
FILL_EPISODES: Final = 50_000
FILL_TIMEOUT_S: Final = 3_600
NEWEST: Final = "SELECT toUnixTimestamp64Nano(max(started_at)) AS newest_ns FROM episodes"
SETTLE_TIMEOUT_S: Final = 300
SETTLED_LOOKS: Final = 5
"""Looks in a row without a merge."""
DAY_S: Final = 86_400
ROUNDS: Final = 9
CPU_CLOCK_MS: Final = 0.1
"""The server's log has less CPU time than this of a query only by chance, sometimes none."""
MESSAGE_COLUMNS: Final = frozenset({
    "otel_traces.SpanAttributes", "otel_traces.Events.Attributes", "otel_logs.Body", "otel_logs.LogAttributes",
    "episode_messages.message", "transition_rows.action", "transition_rows.tools", "transition_rows.tool_results",
    "dead_letters.raw_base64",
})  # fmt: skip


class Case(NamedTuple):
    """A query with the parameters of somebody who asks it."""

    name: str
    parameters: Mapping[str, object]
    is_list: bool = False
    """A list page's: it may read no message column."""
    is_all_time: bool = False


class Timing(NamedTuple):
    """What a case took."""

    median_ms: float
    cpu_ms: float
    """Of the server, the median."""
    read_rows: int
    columns: frozenset[str]
    """Read from our tables, ``table.column``."""


def fill(connection: Connection, episodes: int, end_ns: int, other: Mapping[str, str] = MappingProxyType({})) -> None:
    """Make a store of ``episodes`` episodes, the last of which starts at ``end_ns``; ``other`` replaces statements."""
    base_ns = end_ns - episodes * STEP_NS
    for table in TABLES:
        sql = other.get(table) or (FILLED / f"{table}.sql").read_text(encoding="utf-8")
        start = time.perf_counter()
        for first in range(0, episodes, FILL_EPISODES):
            part = {"first": first, "episodes": min(FILL_EPISODES, episodes - first)}
            connection.command(
                sql,
                doing=f"filling {table}",
                parameters={
                    name: value
                    for name, value in {**part, "base_ns": base_ns, "step_ns": STEP_NS}.items()
                    if f"{{{name}:" in sql
                },
                settings={"max_partitions_per_insert_block": "0"},
            )
        print(f"  {table}: {time.perf_counter() - start:.1f} s", flush=True)


def cases(connection: Connection, episodes: int, end_ns: int) -> list[Case]:
    """Every query, asked about what came last."""
    facts = _facts(connection, episodes - 100)
    trace, trace_ids, responses = facts["trace"], facts["traces"], facts["responses"]
    version, previous = f"m@v{1 + (episodes - 1) // 10_000 - 1}", f"m@v{max(1, (episodes - 1) // 10_000 - 1)}"
    started_ns = end_ns - 100 * STEP_NS
    revision = (started_ns // 1000) + 9_000_000
    end_s, end_us = end_ns // 10**9, end_ns // 1000
    day = end_s - DAY_S
    one: dict[str, object] = {"episode_id": trace, "revision": revision}
    touched_ns = {"from_ns": end_ns - 900 * 10**9, "until_ns": end_ns}
    captured_ns = {"from_ns": started_ns - DAY_S * 10**9, "until_ns": end_ns + DAY_S * 10**9}
    always_ns = {"from_ns": 0, "until_ns": 2**63 - 1}
    arrived = {
        "since_us": end_us - 300_000_000,
        "until_us": end_us + 60_000_000,
        "counted_since_us": end_us - 300_000_000,
    }
    found = [
        Case("dashboard_totals", {"since_s": day}, is_list=True),
        Case("dashboard_outcomes_over_time", {"since_s": day, "bucket_s": 3_600}, is_list=True),
        Case("dashboard_policy_versions", {"since_s": day, "task_prefix": ""}, is_list=True),
        Case("dashboard_latest_failures", {"since_s": day, "fingerprint": "", "max_rows": 8}, is_list=True),
        Case("dashboard_previews", {"episode_ids": trace_ids, "revisions": [revision] * len(trace_ids)}, is_list=True),
        Case(
            "dashboard_step_previews",
            {"episode_ids": trace_ids, "revisions": [revision] * len(trace_ids), "steps": [0] * len(trace_ids)},
            is_list=True,
        ),
        Case("dashboard_snippets", {"episode_ids": trace_ids, "words": ["order"], "part": ""}),
        Case(
            "dashboard_traces_episodes",
            {"trace_ids": trace_ids, "from_s": started_ns // 10**9 - 7 * DAY_S, "until_s": end_s + 60},
            is_list=True,
        ),
        Case("dashboard_task_sets", {"max_rows": 50}, is_list=True),
        Case("dashboard_reward_components", {"policy_versions": [previous, version], "task_prefix": ""}, is_list=True),
        Case(
            "dashboard_task_pairs",
            {"before": previous, "after": version, "task_prefix": "test-", "max_rows": 2_000},
            is_list=True,
        ),
        Case("dashboard_episode", {"episode_id": trace}),
        Case("dashboard_episode_failures", one),
        Case("dashboard_episode_scores", {"trace_ids": [trace], "episode_key": ""}),
        Case(
            "dashboard_spans",
            {
                "trace_ids": [trace],
                "episode_key": "",
                "from_s": started_ns // 10**9 - 3_600,
                "until_s": started_ns // 10**9 + 3_604,
                "max_rows": 600,
            },
            is_list=True,
        ),
        Case("dashboard_span", {"trace_id": trace, "span_id": facts["span"], "start_ns": started_ns + 400_000_000}),
        Case("dashboard_span_step", {"trace_id": trace, "span_id": facts["span"]}),
        Case("dashboard_span_scores", {"trace_id": trace, "span_id": facts["span"]}),
        Case(
            "dashboard_spans_with_text",
            {
                "trace_ids": [trace],
                "from_s": started_ns // 10**9 - 3_600,
                "until_s": started_ns // 10**9 + 3_604,
                "text": "order",
                "max_rows": 600,
            },
        ),
        Case(
            "dashboard_session_turns",
            {
                "session_id": f"session-{(episodes - 100) // 5}",
                "from_s": started_ns // 10**9 - DAY_S,
                "until_s": end_s,
                "max_rows": 2_000,
            },
            is_list=True,
        ),
        Case(
            "dashboard_turn_steps",
            {"trace_ids": trace_ids, "episode_ids": trace_ids, "revisions": [revision] * len(trace_ids)},
            is_list=True,
        ),
        Case("dashboard_turn_messages", {"episode_ids": [trace], "revisions": [revision], "steps": [0]}),
        Case("dashboard_transitions", one, is_list=True),
        Case("dashboard_transition", {**one, "step": 1, "max_tokens": 200, "prompt_tail": 100}),
        Case("dashboard_messages", {**one, "first_step": 0, "last_step": 3}),
        Case("dashboard_trajectories", one, is_list=True),
        Case(
            "dashboard_trajectory_tokens",
            {**one, "row_number": 0, "first_token": 0, "max_tokens": 200, "prompt_tail": 100},
        ),
        Case("dashboard_metric_jobs", {"max_rows": 50}, is_list=True),
        Case("dashboard_metric_names", {"job_ids": ["job-0"]}),
        Case("dashboard_metrics", {"job_ids": ["job-0"], "names": ["batch_reward"]}),
        Case("training_metrics", {"job_id": "job-0"}),
        Case("dead_letter_list", {"reason": "", "with_replayed": 0, "limit": 50}, is_list=True),
        Case("dead_letter_show", {"prefix": facts["letter"]}),
        Case("evaluation_list", {"evaluation_id": "", "name": "test", "model": ""}, is_list=True),
        Case("evaluation_episodes", {"evaluation_id": "test:m@v1", "evaluation_revision": 1}),
        Case("evaluation_errors", {"evaluation_id": "test:m@v1", "evaluation_revision": 1}),
        Case("evaluation_tools", {"evaluation_id": "test:m@v1", "evaluation_revision": 1}),
        Case("evaluation_models", {}, is_list=True, is_all_time=True),
        Case(
            "evaluation_source",
            {"model": version, "task_ids": [], "task_prefix": "test-", "since": _time(day), "run_ids": []},
        ),
        Case(
            "export_episodes",
            {
                "task_ids": [],
                "task_prefix": "",
                "since": _time(day),
                "until": _time(end_s + 60),
                "policy_version": version,
            },
            is_list=True,
        ),
        Case("export_transitions", {"episode_ids": trace_ids, "revisions": facts["revisions"], "data_set_id": ""}),
        Case("export_trajectories", {"episode_ids": trace_ids, "revisions": facts["revisions"], "data_set_id": ""}),
        Case(
            "training_trajectories",
            {
                "task_ids": [],
                "task_prefix": "train-",
                "data_set": "",
                "since": _time(day),
                "until": _time(end_s + DAY_S),
                "services": [],
                "agents": [],
                "models": [],
                "failure_classes": [],
                "without_failure_classes": [],
                "marks": [],
                "without_marks": [],
                "ended_before": _time(end_s + DAY_S),
                "consumed_jobs": [],
                "consumed_steps": [],
                "sample_rate": 1.0,
                "seed": 0,
                "policy_version": version,
                "max_episodes": 256,
            },
        ),
        Case("import_known_spans", {"trace_ids": trace_ids}),
        Case("import_known_logs", {"trace_ids": trace_ids, **touched_ns}),
        Case("import_known_scores", {"score_ids": facts["scores"]}),
        Case("pipeline_state", {"name": "converters"}),
        Case("pipeline_run_lease", {"name": "turn"}),
        Case("pipeline_arrivals", {"since_us": end_us - 30_000_000}),
        Case("pipeline_windows", {**arrived, "max_spans": 1_000_000}),
        Case("pipeline_touched", {**arrived, "after_ns": -(2**63), "after_trace_id": "", "max_traces": 100_000}),
        Case("pipeline_companions", {"trace_ids": trace_ids, **touched_ns, "max_traces": 10_000}),
        Case("pipeline_sizes", {"trace_ids": trace_ids, **touched_ns}),
        Case(
            "pipeline_head",
            {"trace_id": trace, "from_ns": started_ns, "until_ns": started_ns + 4 * 10**9, "max_bytes": 1 << 30},
        ),
        Case(
            "pipeline_relatives",
            {
                "trace_ids": trace_ids,
                "from_ns": end_ns - DAY_S * 10**9,
                "until_ns": end_ns + DAY_S * 10**9,
                "given_from_ns": touched_ns["from_ns"],
                "given_until_ns": touched_ns["until_ns"],
                "by_session": False,
                "max_spans": 100_000,
            },
        ),
        Case(
            "pipeline_neighbours",
            {
                **touched_ns,
                "window_ns": 1_800 * 10**9,
                "services": ["service-1"],
                "held_services": [],
                "held_scopes": [],
                "max_traces": 5_035,
            },
        ),
        Case("pipeline_spans", {"trace_ids": trace_ids, **touched_ns}),
        Case("pipeline_logs", {"trace_ids": trace_ids}),
        Case("pipeline_scores", {"trace_ids": trace_ids, "response_ids": [], "episode_keys": [], "session_ids": []}),
        Case("pipeline_generations", {"trace_ids": [], "response_ids": responses, **captured_ns}),
        # What is not near, and what a trace has: looked for everywhere.
        Case("pipeline_generations", {"trace_ids": [], "response_ids": responses, **always_ns}, is_all_time=True),
        Case("pipeline_generations", {"trace_ids": trace_ids, "response_ids": [], **always_ns}, is_all_time=True),
        Case("pipeline_stored", {"episode_ids": [], "trace_ids": trace_ids}),
        Case("scores_by_id", {"score_ids": facts["scores"]}),
        Case(
            "scores_list",
            {"trace_id": trace, "response_id": "", "session_id": "", "episode_id": "", "limit": 50},
            is_list=True,
        ),
        Case("scores_newest", {"limit": 50}, is_list=True),
        Case("store_counts", {}, is_list=True),
        Case("store_newest_span", {}, is_list=True),
        Case("trace_spans", {"trace_id": trace}),
    ]
    return found + [
        case._replace(parameters={**case.parameters, "since_s": 0}, is_all_time=True)
        for case in found
        if "since_s" in case.parameters
    ]


def _time(at_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))


def _facts(connection: Connection, episode: int) -> dict[str, Any]:
    """Ids of one of the last episodes, and of the thirty-five from there on."""
    sql = """
        SELECT
            lower(hex(sipHash128('trace', {e:UInt64}))) AS trace,
            lower(hex(sipHash64('span', {e:UInt64} * 10 + 1))) AS span,
            lower(hex(sipHash128('letter', toUInt64(0)))) AS letter,
            (SELECT groupArray(lower(hex(sipHash128('trace', number)))) FROM numbers({e:UInt64}, 35)) AS traces,
            (
                SELECT groupArray(concat('chatcmpl-', lower(hex(sipHash128('response', number)))))
                FROM numbers({e:UInt64} * 10, 350) WHERE number % 10 IN (1, 3, 5, 7)
            ) AS responses,
            (SELECT groupArray(score_id) FROM scores WHERE has(traces, trace_id)) AS scores,
            (SELECT groupArray((episode_id, revision)) FROM episodes WHERE has(traces, episode_id)) AS pairs
    """
    row = connection.query(sql, doing="reading ids", parameters={"e": episode}).row(0, named=True)
    pairs = [list(pair.values()) for pair in row.pop("pairs")]
    return {**row, "traces": [pair[0] for pair in pairs], "revisions": [pair[1] for pair in pairs]}


def measure(
    connections: Sequence[Connection], found: Sequence[Sequence[Case]], marks: Sequence[str]
) -> list[list[Timing]]:
    """Time every case in each database by turns, so that whatever else the machine does falls on all of them."""
    times: list[list[list[float]]] = [[[] for _ in cases] for cases in found]
    for turn in range(ROUNDS + 1):
        for at in range(len(found[0])):
            for number, cases in enumerate(found):
                settings = {"log_queries": "1", "log_comment": f"{marks[number]} {at}"} if turn else {}
                query = named_query(cases[at].name)
                parameters = query.bind(cases[at].parameters)
                start = time.perf_counter()
                connections[number].query(query.sql, doing=cases[at].name, parameters=parameters, settings=settings)
                if turn:
                    times[number][at].append((time.perf_counter() - start) * 1e3)
    connections[0].command("SYSTEM FLUSH LOGS query_log", doing="reading the log")
    return [
        [
            Timing(statistics.median(times[number][at]), *_read(connections[0], mark, at))
            for at in range(len(found[number]))
        ]
        for number, mark in enumerate(marks)
    ]


def settle(connection: Connection) -> None:
    """Wait until the merges of what was filled in are over: they would be timed too."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    idle = 0
    while idle < SETTLED_LOOKS and time.monotonic() < deadline:
        merging = int(connection.query("SELECT count() AS n FROM system.merges", doing="looking")["n"][0])
        idle = 0 if merging else idle + 1
        time.sleep(0.2)


def _read(connection: Connection, mark: str, at: int) -> tuple[float, int, frozenset[str]]:
    """CPU time, rows and columns that a case took and read, from the server's own log."""
    sql = """
        SELECT
            quantileExact(0.5)(ProfileEvents['UserTimeMicroseconds'] + ProfileEvents['SystemTimeMicroseconds']) / 1000,
            max(read_rows),
            groupUniqArrayArray(columns)
        FROM system.query_log
        WHERE type = 'QueryFinish' AND log_comment = {mark:String}
    """
    cpu_ms, rows, columns = connection.query(sql, doing="reading the log", parameters={"mark": f"{mark} {at}"}).row(0)
    return float(cpu_ms), int(rows), frozenset(str(each).partition(".")[2] for each in columns)


def fill_store(address: Address, spans: int) -> list[Case]:
    """Fill a database; the cases to ask it."""
    episodes = spans // SPANS_PER_EPISODE
    print(f"{spans:,} spans in {episodes * STEP_NS / 1e9 / DAY_S:.0f} days", flush=True)
    with Store.open(address):
        connection = Connection(address, response_timeout_s=FILL_TIMEOUT_S)
        try:
            newest_ns = int(connection.query(NEWEST, doing="looking")["newest_ns"][0])
            end_ns = newest_ns + STEP_NS if newest_ns else time.time_ns() // 10**9 * 10**9
            if not newest_ns:
                fill(connection, episodes, end_ns)
            return cases(connection, episodes, end_ns)
        finally:
            connection.close()


def main() -> None:
    """Measure both sizes and print the growth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="100 k and 1 M spans; under a minute")
    parser.add_argument("--data-dir", help="keep the stores there, or use those that are there")
    arguments = parser.parse_args()
    small, large = (100_000, 1_000_000) if arguments.quick else (1_000_000, 10_000_000)
    with tempfile.TemporaryDirectory(prefix="spanloop-") as folder:
        data_dir = DataDir(arguments.data_dir or folder)
        with EmbeddedClickHouse(data_dir):
            address = embedded_address(data_dir)
            names = {"small": small, "large": large}
            found = [fill_store(replace(address, database=name), spans) for name, spans in names.items()]
            connections = [Connection(address, database=name) for name in names]
            settle(connections[0])
            # A part of the log may hold what an earlier run said.
            marks = [f"{name}-{time.time_ns()}" for name in names]
            before, after = measure(connections, found, marks)
            for connection in connections:
                connection.close()
    report(found[0], before, after)


def report(found: Sequence[Case], before: Sequence[Timing], after: Sequence[Timing]) -> None:
    """The table, and the line that programs read; ends the benchmark when a list reads a message column."""
    print(
        f"{'query':<44} {'ms':>8} {'ms':>8} {'growth':>7} {'cpu ms':>8} {'cpu ms':>8} {'growth':>7}"
        f" {'rows':>11} {'rows':>11}"
    )
    growth: dict[bool, list[float]] = {False: [], True: []}
    cpu_growth: dict[bool, list[float]] = {False: [], True: []}
    broken: list[str] = []
    for case, first, second in zip(found, before, after, strict=True):
        growth[case.is_all_time].append(second.median_ms / first.median_ms)
        name = f"{case.name}, all time" if case.is_all_time else case.name
        cpu_growth[case.is_all_time].append(max(second.cpu_ms, CPU_CLOCK_MS) / max(first.cpu_ms, CPU_CLOCK_MS))
        print(
            f"{name:<44} {first.median_ms:>8.1f} {second.median_ms:>8.1f} {growth[case.is_all_time][-1]:>7.2f}"
            f" {first.cpu_ms:>8.1f} {second.cpu_ms:>8.1f} {cpu_growth[case.is_all_time][-1]:>7.2f}"
            f" {first.read_rows:>11,} {second.read_rows:>11,}"
        )
        if case.is_list and (read := sorted(second.columns & MESSAGE_COLUMNS)):
            broken.append(f"{name} reads {', '.join(read)}")
    if broken:
        raise SystemExit("lists read message columns: " + "; ".join(broken))
    print(
        f"median growth {statistics.median(growth[False]):.2f}, of CPU time {statistics.median(cpu_growth[False]):.2f}"
    )
    print(
        f"ratio growth={max(growth[False]):.2f} cpu={max(cpu_growth[False]):.2f}"
        f" all_time={max(growth[True]):.2f} all_time_cpu={max(cpu_growth[True]):.2f}"
    )


if __name__ == "__main__":
    main()

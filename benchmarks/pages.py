"""Server time of the dashboard's pages, and of full text search, at two sizes of a store.

    python benchmarks/pages.py [--quick] [--data-dir FOLDER]

Text is of 200,000 words by Zipf's law, 3 kB a message, four messages to an episode of ten spans; the other tables are
those of ``benchmarks/queries.py``. The second store is ten times as old as the first: 10 M spans against 1 M, with
``--quick`` 200 k against 20 k. With ``--data-dir`` both stores are kept there, and a later run measures
them without filling them again. Each page's queries run as the page runs them: for the last day (the last hour with
``--quick``), and for all time.
Named baseline: the same page in the smaller store. Beside the time that passed, the table has what the server's log
says about the larger store: CPU time and rows read, which other work on the machine does not change, and their growth.
The last line is
``ratio p95_ms=… growth=… search_ms=… index=…``: the largest 95th percentile of a page of that range in the larger
store and its growth, the slowest search, and the index of words as a share of the text in it.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, cast

import polars as pl
from queries import FILL_TIMEOUT_S, FILLED, NEWEST, SPANS_PER_EPISODE, STEP_NS, fill, settle

from spanloop.dashboard.queries import (
    agents,
    facets,
    failures,
    lists,
    numbers,
    overview,
    policy_versions,
    previews,
    sessions,
)
from spanloop.dashboard.view_models.filters import Filters, TimeRange
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Price, Prices
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address
from spanloop.store.named_queries import named_query

HOUR_S: Final = 3_600
DAY_S: Final = 86_400
ROUNDS: Final = 12
PRICES: Final = Prices(models=(Price(model="m", input=1.0, cached=0.1, output=4.0),))
INDEX_SHARE: Final = """
SELECT
    (SELECT sum(data_compressed_bytes) FROM system.data_skipping_indices
        WHERE database = currentDatabase() AND table = 'episode_messages' AND name = 'idx_words') AS index_bytes,
    (SELECT sum(length(message)) FROM episode_messages) AS text_bytes,
    (SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = currentDatabase()) AS store_bytes
"""


LOGGED: Final = """
SELECT sum(ProfileEvents['UserTimeMicroseconds'] + ProfileEvents['SystemTimeMicroseconds']) / 1000, sum(read_rows)
FROM system.query_log
WHERE type = 'QueryFinish' AND log_comment = {comment:String}
"""


class Timing(NamedTuple):
    """Time, CPU time and rows of a case in one store."""

    median_ms: float
    p95_ms: float
    cpu_ms: float
    """CPU time of the server, a mean."""
    read_rows: float


class LoggedStore:
    """A store whose queries are in the server's log under a comment."""

    def __init__(self, store: Store, comment: str) -> None:
        self._connection, self._comment = store.connection, comment

    @property
    def connection(self) -> "LoggedStore":
        """Itself: it has the one method of a connection that pages call."""
        return self

    def query(self, sql: str, /, *, doing: str = "", **arguments: object) -> pl.DataFrame:
        """Run a named query of a store, or a statement of a connection."""
        settings = {"log_queries": "1", "log_comment": self._comment}
        if not doing:
            query = named_query(sql)
            return self._connection.query(query.sql, doing=sql, parameters=query.bind(arguments), settings=settings)
        parameters = cast("Mapping[str, object]", arguments["parameters"])
        return self._connection.query(sql, doing=doing, parameters=parameters, settings=settings)


class Case(NamedTuple):
    """A page, or a search."""

    name: str
    run: Callable[[Store], object]
    kind: str
    """``day``, ``all`` or ``search``."""


def cases(end_s: int, range_s: int) -> list[Case]:
    """Return every page with what it asks about the last ``range_s`` and about all time, and the searches."""
    day, always = Filters(TimeRange(end_s - range_s), "24h"), Filters()
    each: list[Case] = []
    for kind, since, filters in (("day", end_s - range_s, day), ("all", 0, always)):
        each += [
            Case("overview: totals", _ask(overview.fetch_totals, since), kind),
            Case("overview: over time", _ask(overview.fetch_outcomes_over_time, since, 3_600), kind),
            Case("versions", _ask(policy_versions.fetch_versions, since), kind),
            Case("episodes", _ask(lists.fetch_episodes, filters, "", None), kind),
            Case("episodes by reward", _ask(lists.fetch_episodes, filters, "-reward", None), kind),
            Case("episodes of an agent", _ask(_filtered, filters, {"agent": "agent-1", "outcome": "failure"}), kind),
            Case("episodes with a tool", _ask(_filtered, filters, {"tool": "tool_1"}), kind),
            Case("traces", _ask(lists.fetch_traces, filters, "", None), kind),
            Case("sessions", _ask(lists.fetch_sessions, filters, "", None), kind),
            Case("sessions by turns", _ask(lists.fetch_sessions, filters, "-turns", None), kind),
            Case("graph of agents", _ask(agents.fetch_calls, filters), kind),
            Case("failures", _ask(lists.fetch_failures, filters, "", None), kind),
            Case("failure groups", _ask(failures.fetch_groups, filters), kind),
            Case("failure rates", _ask(failures.fetch_rates, filters), kind),
            Case("tools by failures", _ask(failures.fetch_tools, filters), kind),
            Case("transitions", _ask(lists.fetch_steps, filters, "", None), kind),
            Case("transitions by reward", _ask(lists.fetch_steps, filters, "-reward", None), kind),
            Case("traces by duration", _ask(lists.fetch_traces, filters, "-duration", None), kind),
            Case("latest failures", _ask(failures.fetch_latest, since), kind),
            Case("episodes by failures", _ask(failures.fetch_versions, filters), kind),
            Case("episodes of a model", _ask(_filtered, filters, {"model": "m"}), kind),
            Case(
                "episodes with an attribute", _ask(_filtered, filters, {"attr": "server.address=api.example.com"}), kind
            ),
            Case("episodes of a user", _ask(_filtered, filters, {"user": "somebody"}), kind),
            *(Case(f"latency by {by}", _ask(numbers.fetch_latency, filters, by), kind) for by in numbers.LATENCY_BY),
            *(
                Case(f"cost by {by}", _ask(numbers.fetch_usage, filters, PRICES, by), kind)
                for by in ("agent", "model", "task")
            ),
            Case("cost over time", _ask(numbers.fetch_cost_over_time, filters, PRICES, 3_600), kind),
            *(
                Case(f"errors by {by}", _ask(numbers.fetch_errors_over_time, filters, by, 3_600), kind)
                for by in ("class", "agent")
            ),
            Case("time span", _ask(numbers.fetch_time_span, filters), kind),
            Case("wasted by failures", _ask(numbers.fetch_wasted, filters, PRICES), kind),
            Case("episodes of a called model", _ask(_filtered, filters, {"called": "m"}), kind),
            Case("episodes of a failure group", _ask(_filtered, filters, {"fingerprint": "fingerprint-7"}), kind),
            *(
                Case(f"values of {name}", _ask(facets.fetch_values, filters, name), kind)
                for name in ("agent", "model", "called", "tool", "fingerprint", "user", "attr")
            ),
        ]
    each.append(Case("previews of a page", _ask(_previews, day), "day"))
    each.append(Case("previews of steps", _ask(_step_previews, day), "day"))
    each.append(Case("turns of a session", _ask(_turns, day), "day"))
    each.append(Case("episodes of traces", _ask(_trace_episodes, day), "day"))
    searches = {
        "rare word": _word(150_000),
        "common word": _word(3),
        "absent word": "quizzaciously",
        "two words": f"{_word(40)} {_word(900)}",
    }
    each += [
        Case(f"search: {name}", _ask(_search, replace(always, text=text)), "search") for name, text in searches.items()
    ]
    return each


def _ask(function: Callable[..., object], *arguments: object) -> Callable[[Store], object]:
    def ask(store: Store) -> object:
        return function(store, *arguments)

    return ask


def _filtered(store: Store, filters: Filters, values: Mapping[str, str]) -> lists.ListPage:
    chosen = replace(filters, values={name: (value,) for name, value in values.items()})
    return lists.fetch_episodes(store, chosen, "", None)


def _previews(store: Store, filters: Filters) -> object:
    return previews.fetch_previews(store, lists.fetch_episodes(store, filters, "", None).rows)


def _step_previews(store: Store, filters: Filters) -> object:
    return previews.fetch_step_previews(store, lists.fetch_steps(store, filters, "", None).rows)


def _trace_episodes(store: Store, filters: Filters) -> object:
    return previews.fetch_trace_episodes(store, lists.fetch_traces(store, filters, "", None).rows)


def _turns(store: Store, filters: Filters) -> object:
    newest = lists.fetch_sessions(store, filters, "", None, rows=1).rows["session_id"][0]
    return sessions.fetch_turn_steps(store, sessions.fetch_turns(store, newest, filters.time))


def _search(store: Store, filters: Filters) -> int:
    """Search as the page does: the rows and the text around the words."""
    page = lists.fetch_episodes(store, filters, "", None)
    assert page.words is not None
    previews.fetch_snippets(store, page.rows["episode_id"].to_list(), page.words)
    return page.total


def _word(rank: int) -> str:
    """Return a word of ``filled/zipf_messages.sql``."""
    at = rank - 1
    word = "bcdfghjklmnprstvz"[at % 17] + "aeiou"[at // 17 % 5] + "bdgklmnprst"[at // 85 % 11] + "aeiou"[at // 935 % 5]
    return word if at < 4_675 else f"{word}{'dlmnrst'[at // 4_675 % 7]}{at // 32_725}"


def fill_store(address: Address, spans: int, end_ns: int) -> int:
    """Fill an empty database with spans and words up to a time, and merge it as an old store is merged.

    Returns:
        Where its spans end, in nanoseconds since 1970.
    """
    print(f"{spans:,} spans", flush=True)
    with Store.open(address):
        connection = Connection(address, response_timeout_s=FILL_TIMEOUT_S)
        try:
            if newest_ns := int(connection.query(NEWEST, doing="looking")["newest_ns"][0]):
                return newest_ns + STEP_NS
            texts = {"episode_messages": (FILLED / "zipf_messages.sql").read_text(encoding="utf-8")}
            fill(connection, spans // SPANS_PER_EPISODE, end_ns, texts)
            connection.command("OPTIMIZE TABLE episode_messages FINAL", doing="merging")
            return end_ns
        finally:
            connection.close()


def measure(store: Store, case: Case) -> Timing:
    """Run a case several times; the first run counts for nothing."""
    comment = f"{store.database} {case.name} {time.time_ns()}"
    logged = cast("Store", LoggedStore(store, comment))
    case.run(store)
    times: list[float] = []
    for _ in range(ROUNDS - 1):
        start = time.perf_counter()
        case.run(logged)
        times.append((time.perf_counter() - start) * 1e3)
    store.connection.command("SYSTEM FLUSH LOGS query_log", doing="reading the log")
    cpu_ms, rows = store.connection.query(LOGGED, doing="reading the log", parameters={"comment": comment}).row(0)
    return Timing(
        statistics.median(times), statistics.quantiles(times, n=20)[-1], cpu_ms / len(times), rows / len(times)
    )


def print_row(name: str, before: Timing, after: Timing) -> None:
    """Print a case's line of the table."""
    print(
        f"{name:<38} {before.median_ms:>9.1f} {after.median_ms:>9.1f} {after.p95_ms:>8.1f}"
        f" {after.median_ms / before.median_ms:>7.2f} {after.cpu_ms:>8.1f} {after.cpu_ms / before.cpu_ms:>7.2f}"
        f" {after.read_rows:>11,.0f} {after.read_rows / max(1.0, before.read_rows):>7.2f}",
        flush=True,
    )


def compare(stores: Sequence[Store], each: Sequence[Case]) -> tuple[Mapping[str, float], float, float]:
    """Measure every case in both stores; return the worst 95th percentile of each kind, and a range's growths.

    The growths are of time and of the server's CPU time.
    """
    worst: dict[str, float] = {"day": 0.0, "all": 0.0, "search": 0.0}
    growth, cpu_growth = 0.0, 0.0
    print(
        f"{'page':<38} {'small ms':>9} {'large ms':>9} {'p95 ms':>8} {'growth':>7} {'cpu ms':>8} {'growth':>7}"
        f" {'rows':>11} {'growth':>7}"
    )
    for case in each:
        before, after = (measure(store, case) for store in stores)
        worst[case.kind] = max(worst[case.kind], after.p95_ms)
        if case.kind == "day":
            growth = max(growth, after.median_ms / before.median_ms)
            cpu_growth = max(cpu_growth, after.cpu_ms / before.cpu_ms)
        print_row(case.name if case.kind != "all" else f"{case.name}, all time", before, after)
    return worst, growth, cpu_growth


def main() -> None:
    """Fill both stores, measure every page, and print the line that programs read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="20 k and 200 k spans")
    parser.add_argument("--data-dir", help="keep the stores there, or use those that are there")
    arguments = parser.parse_args()
    is_quick: bool = arguments.quick
    sizes = {"small": 20_000, "large": 200_000} if is_quick else {"small": 1_000_000, "large": 10**7}
    range_s = HOUR_S if is_quick else DAY_S
    with tempfile.TemporaryDirectory(prefix="spanloop-") as folder:
        data_dir = DataDir(arguments.data_dir or folder)
        with EmbeddedClickHouse(data_dir):
            address = embedded_address(data_dir)
            end_ns = time.time_ns() // 10**9 * 10**9
            for name, spans in sizes.items():
                end_ns = fill_store(replace(address, database=name), spans, end_ns)
            stores = [Store(replace(address, database=name)) for name in sizes]
            settle(stores[0].connection)
            worst, growth, cpu_growth = compare(stores, cases(end_ns // 10**9 + STEP_NS // 10**9, range_s))
            index, text, stored = stores[1].connection.query(INDEX_SHARE, doing="looking").row(0)
            print(f"index {index:,} bytes: {index / text:.1%} of the text, {index / stored:.1%} of the store")
            print(f"all time: at most {worst['all']:.0f} ms; growth of a range's CPU time at most {cpu_growth:.2f}")
            for store in stores:
                store.close()
    print(
        f"ratio p95_ms={worst['day']:.0f} growth={growth:.2f} search_ms={worst['search']:.0f} index={index / text:.3f}"
    )


if __name__ == "__main__":
    main()

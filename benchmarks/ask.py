"""Twenty questions to a large store: whether the answers are right, and how long they take.

    python benchmarks/ask.py [--quick] [--data-dir FOLDER]

The store, which ``--data-dir`` keeps for later runs, holds 10 M generated spans (``--quick``: 200 k) with replaced
revisions, deleted episodes and scores. Each question of ``asking/questions.py`` is put to ``spanloop.client.Client``,
and to ``spanloop serve mcp`` over HTTP by the client of the official SDK; the answers are compared with those of plain
SQL over the base tables. Named baseline: that SQL. The last line is ``ratio wrong=… p95_ms=… mcp_p95_ms=…``: the number
of wrong answers, and the largest 95th percentile of a question to each.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from asking.questions import QUESTIONS, Question, Rows, World, ask_client, ask_tables, parse_reply, tool_arguments
from asking.store import choose_world, fill_to_ask
from mcp import Client as McpClient
from queries import FILL_TIMEOUT_S, NEWEST, SPANS_PER_EPISODE, STEP_NS, settle

from spanloop.client import Client
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.discovery import embedded_address

ROUNDS: Final = 12
DAY_S: Final = 86_400
_START_TIMEOUT_S: Final = 60


class Timed:
    """Times of one question's rounds; the first one counts for nothing."""

    def __init__(self) -> None:
        self._times_ms: list[float] = []
        self._start_s = 0.0

    def __enter__(self) -> None:
        self._start_s = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._times_ms.append((time.perf_counter() - self._start_s) * 1e3)

    @property
    def median_ms(self) -> float:
        """The median."""
        return statistics.median(self._times_ms[1:])

    @property
    def p95_ms(self) -> float:
        """The 95th percentile."""
        return statistics.quantiles(self._times_ms[1:], n=20)[-1]


@contextmanager
def mcp_server(data_dir: DataDir) -> Generator[str]:
    """Run ``spanloop serve mcp`` and yield its address."""
    command = [sys.executable, "-m", "spanloop.mcp_server", "--port=0", f"--data-dir={data_dir.path}"]
    with subprocess.Popen(command, env=os.environ | {DATA_DIR_ENV: str(data_dir.path)}) as process:
        try:
            deadline_s = time.monotonic() + _START_TIMEOUT_S
            while (running := data_dir.running("mcp")) is None:
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise SystemExit("the MCP server did not start")
                time.sleep(0.05)
            yield f"{running.url}/mcp"
        finally:
            process.terminate()


async def ask_tools(url: str, world: World) -> Sequence[tuple[Rows, Timed]]:
    """Put every question to the MCP server."""
    answers: list[tuple[Rows, Timed]] = []
    async with McpClient(url) as client:
        for question in QUESTIONS:
            timed, text = Timed(), ""
            for _ in range(ROUNDS):
                with timed:
                    result = await client.call_tool(question.tool, tool_arguments(question, world))
                content: Any = result.content[0]
                text = content.text
            answers.append((parse_reply(question, text), timed))
    return answers


def ask_whole_client(client: Client, world: World) -> Sequence[tuple[Rows, Timed]]:
    """Put every question to the client."""
    answers: list[tuple[Rows, Timed]] = []
    for question in QUESTIONS:
        timed, rows = Timed(), Rows()
        for _ in range(ROUNDS):
            with timed:
                rows = ask_client(client, question, world)
        answers.append((rows, timed))
    return answers


def print_table(
    expected: Sequence[tuple[Rows, float]], client: Sequence[tuple[Rows, Timed]], tools: Sequence[tuple[Rows, Timed]]
) -> int:
    """Print a line for each question; return how many answers are wrong."""
    wrong = 0
    print(f"{'question':<78} {'sql ms':>8} {'client ms':>9} {'p95 ms':>7} {'mcp ms':>7} {'p95 ms':>7}")
    for question, right, asked, tool in zip(QUESTIONS, expected, client, tools, strict=True):
        mistakes = [name for name, answer in (("client", asked), ("mcp", tool)) if answer[0] != right[0]]
        wrong += len(mistakes)
        note = f"  wrong: {', '.join(mistakes)}" if mistakes else ""
        print(
            f"{question.text:<78} {right[1]:>8.0f} {asked[1].median_ms:>9.1f} {asked[1].p95_ms:>7.1f}"
            f" {tool[1].median_ms:>7.1f} {tool[1].p95_ms:>7.1f}{note}"
        )
    return wrong


def ask_sql(connection: Connection, question: Question, world: World) -> tuple[Rows, float]:
    """Return the right answer, and its time in milliseconds."""
    start_s = time.perf_counter()
    rows = ask_tables(connection, question, world)
    return rows, (time.perf_counter() - start_s) * 1e3


def main() -> None:
    """Fill the store, put every question, and print the line that programs read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="200 k spans")
    parser.add_argument("--spans", type=int, help="another number of spans")
    parser.add_argument("--data-dir", help="keep the store there, or use the one that is there")
    options = parser.parse_args()
    spans = options.spans or (200_000 if options.quick else 10**7)
    end_s = int(time.time())
    with tempfile.TemporaryDirectory(prefix="spanloop-") as folder:
        data_dir = DataDir(options.data_dir or folder).open()
        with EmbeddedClickHouse(data_dir), Store.open(embedded_address(data_dir)):
            connection = Connection(embedded_address(data_dir), response_timeout_s=FILL_TIMEOUT_S)
            start_s = time.perf_counter()
            if newest_ns := int(connection.query(NEWEST, doing="looking")["newest_ns"][0]):
                end_s = (newest_ns + STEP_NS) // 10**9
            else:
                fill_to_ask(connection, spans // SPANS_PER_EPISODE, end_s * 10**9)
            settle(connection)
            print(f"{spans:,} spans in {time.perf_counter() - start_s:.0f} s", flush=True)
            world = choose_world(connection, start_s=end_s - 3 * DAY_S, end_s=end_s - DAY_S)
            expected = [ask_sql(connection, question, world) for question in QUESTIONS]
            with Client(data_dir) as client:
                answers = ask_whole_client(client, world)
            with mcp_server(data_dir) as url:
                replies = asyncio.run(ask_tools(url, world))
            connection.close()
    wrong = print_table(expected, answers, replies)
    slowest = [max(timed.p95_ms for _, timed in each) for each in (answers, replies)]
    print(f"ratio wrong={wrong} p95_ms={slowest[0]:.0f} mcp_p95_ms={slowest[1]:.0f}")


if __name__ == "__main__":
    main()

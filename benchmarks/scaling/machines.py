"""Machines and their price for a number of spans a day, from measured figures.

`layout` is the formula. Everything that is not measured is a constant here with its reason.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

FIGURES: Final = Path(__file__).parents[1] / "scale_results.json"
PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "scaling.md"
BEGIN: Final = "<!-- python benchmarks/scale.py --table -->"
END: Final = "<!-- end of the tables -->"
DAYS: Final = 30
"""Days that spans and what is derived from them stay."""
SPANS_A_DAY: Final = (10**7, 10**8, 10**9)
UTILISATION: Final = 0.6
"""Share of a core that is used at the peak: the rest is for merges that coincide, and for a machine that is lost."""
DISK_FILL: Final = 0.7
"""Share of a disk that is used: merges write a part anew before they remove the old ones."""
OUTAGE_S: Final = 3_600
"""The spools hold what arrives at the peak while ClickHouse is away for an hour."""
SERVER_CORES: Final = 16
"""Cores of one ClickHouse server; more are divided into shards."""
SERVER_DISK_GIB: Final = 8_192
"""Disk of one ClickHouse server; more is divided into shards."""
GIB_A_CORE: Final = 4
"""Memory of a ClickHouse server for a core, at least; and cores for memory: one for each `MOST_GIB_A_CORE`."""
MOST_GIB_A_CORE: Final = 8
STORED_A_MEMORY: Final = 100
"""Compressed bytes of a ClickHouse server for a byte of memory, at most: an assumption for long retention."""
PIPELINE_GIB: Final = 2.5
"""The pipeline's limit of 2 GiB (``SPANLOOP_CONVERT_MEMORY_MIB``) and the system."""
CAPTURED_SHARE: Final = 0.05
"""Calls through the gateway for a span: one trace in ten, with five model calls in ten spans, as in the benchmark."""
PAGE_QUERIES_A_DAY: Final = 20_000
"""Fifty people who open forty pages a day with ten queries each."""
KEEPERS: Final = 3
"""Servers of ClickHouse Keeper, a quorum, which tables with copies need."""
CONTROL: Final = (2, 4.0, 20)
"""Cores, GiB of memory and of disk for scheduler, dashboard and control database, however many spans; not measured."""
SMALL_CORES: Final = 4
"""Parts that need no more cores together run on one machine (``spanloop up``)."""
VOLUME_BYTES_S: Final = 125 * 2**20
VOLUME_OPERATIONS_S: Final = 3_000
"""Throughput and operations of a common network volume without surcharge."""
HOURS_A_MONTH: Final = 730
GIB: Final = 2**30


class Prices(NamedTuple):
    """Round list prices in dollars, and the load at the peak."""

    date: str
    vcpu_hour: float
    gib_hour: float
    """A GiB of memory for an hour."""
    gib_month: float
    """A GiB of block storage for a month."""
    peak: float
    """Load at the peak relative to the mean."""


PRICES: Final = Prices(date="2026-11-27", vcpu_hour=0.04, gib_hour=0.0045, gib_month=0.08, peak=3.0)


@dataclass(frozen=True)
class Results:
    """Measured figures, for a million spans or calls."""

    measured: str
    """Date."""
    spans: int
    """Spans of the run with one of each part."""
    processors: int
    parts: Mapping[str, Mapping[str, Any]]
    """Part → fields of `Usage`."""
    stored_bytes: Mapping[str, int]
    page_cpu_s: float
    pipelines: int
    """Pipelines in the run with two of everything."""
    cpu_ratio: float
    bytes_ratio: float

    @classmethod
    def load(cls) -> Self:
        """Read the stored figures."""
        return cls(**json.loads(FIGURES.read_text(encoding="utf-8")))

    def store(self) -> None:
        """Replace the stored figures."""
        FIGURES.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    def cpu_s(self, part: str) -> float:
        """Return the CPU-seconds of one span, or of one call of the gateway."""
        return float(self.parts[part]["cpu_s"]) / 1e6

    def sum_of_spans(self, field: str, *parts: str) -> float:
        """Return a field of parts together, for one span."""
        return sum(float(self.parts[part][field]) for part in parts) / 1e6

    @property
    def stored_bytes_a_span(self) -> float:
        """Compressed bytes on disk that a span leaves in all tables."""
        return sum(self.stored_bytes.values()) / 1e6


class Machines(NamedTuple):
    """Equal machines of one part."""

    part: str
    machines: int
    cores: int
    memory_gib: float
    disk_gib: int
    """Of each, as are cores and memory."""
    busy_cores: float
    """Cores that all of them keep busy at the peak; of pipelines on average."""

    def price(self, prices: Prices) -> float:
        """Return the price of a month."""
        hourly = self.cores * prices.vcpu_hour + self.memory_gib * prices.gib_hour
        return self.machines * (hourly * HOURS_A_MONTH + self.disk_gib * prices.gib_month)


def layout(results: Results, spans_a_day: int, prices: Prices, *, copies: int) -> Sequence[Machines]:
    """Return the machines for so many spans a day.

    Busy cores are spans/s times CPU-seconds a span: at the peak for what answers clients (collector, ClickHouse while
    it ingests, gateway), on average for what may wait (the conversion). A process of spanloop counts as one core, and
    `UTILISATION` of a core is used. Each copy of ClickHouse counts as a whole server, whose memory also follows the
    bytes that it stores.

    Args:
        results: Measured figures.
        spans_a_day: On average over a day.
        prices: The prices, and the load at the peak.
        copies: 1, or 2 of everything so that a machine may be lost.
    """
    mean_s = spans_a_day / 86_400
    peak_s = mean_s * prices.peak
    collecting = peak_s * results.cpu_s("collector")
    converting = mean_s * results.cpu_s("pipeline")
    serving = peak_s * CAPTURED_SHARE * results.cpu_s("gateway")
    storing = (
        peak_s * results.cpu_s("ClickHouse, ingest")
        + mean_s * results.cpu_s("ClickHouse, conversion")
        + PAGE_QUERIES_A_DAY / 86_400 * prices.peak * results.page_cpu_s
    )
    disk_gib = spans_a_day * DAYS * results.stored_bytes_a_span / DISK_FILL / GIB
    spool_gib = peak_s * OUTAGE_S * results.sum_of_spans("written_bytes", "collector") / DISK_FILL / GIB
    busy = collecting + converting + serving + storing
    if copies == 1 and busy / UTILISATION + CONTROL[0] <= SMALL_CORES and disk_gib <= SERVER_DISK_GIB:
        cores, memory_gib = _server(busy / UTILISATION + CONTROL[0], disk_gib)
        disk = math.ceil(disk_gib + spool_gib) + CONTROL[2]
        return [Machines("everything, `spanloop up`", 1, cores, memory_gib, disk, busy)]
    shards = math.ceil(max(storing / UTILISATION / SERVER_CORES, disk_gib / SERVER_DISK_GIB))
    server_cores, server_gib = _server(storing / UTILISATION / shards, disk_gib / shards)
    processes = {
        name: max(copies, math.ceil(cores / UTILISATION))
        for name, cores in (("collector", collecting), ("pipeline", converting), ("gateway", serving))
    }
    spool_of_each = math.ceil(spool_gib / processes["collector"])
    server_disk = math.ceil(disk_gib / shards)
    keepers = [Machines("ClickHouse Keeper", KEEPERS, 1, 2.0, 10, 0.0)] if copies > 1 else []
    return [
        Machines("collector", processes["collector"], 1, 2.0, spool_of_each, collecting),
        Machines("ClickHouse", shards * copies, server_cores, server_gib, server_disk, storing * copies),
        *keepers,
        Machines("pipeline", processes["pipeline"], 1, PIPELINE_GIB, 5, converting),
        Machines("gateway", processes["gateway"], 1, 2.0, 10, serving),
        Machines("scheduler, dashboard, PostgreSQL", copies, *CONTROL, 0.0),
    ]


def _server(cores: float, disk_gib: float) -> tuple[int, float]:
    """Return cores, an even number, and GiB of memory of a server of ClickHouse."""
    stored_gib = disk_gib * DISK_FILL / STORED_A_MEMORY
    even = max(2, 2 * math.ceil(max(cores, stored_gib / MOST_GIB_A_CORE) / 2))
    return even, float(max(GIB_A_CORE * even, 4 * math.ceil(stored_gib / 4)))


class Limit(NamedTuple):
    """The load that one unit of a part reaches, and the next unit to add."""

    name: str
    spans_a_day: float
    """Mean over a day, with the peak at `UTILISATION` of the unit; disks are full to `DISK_FILL`."""
    next_step: str


def limits(results: Results, prices: Prices) -> Sequence[Limit]:
    """Return where one of each saturates, the first one first."""
    at_peak = 86_400 / prices.peak
    server = prices.peak * results.cpu_s("ClickHouse, ingest") + results.cpu_s("ClickHouse, conversion")
    clickhouse = ("ClickHouse, ingest", "ClickHouse, conversion")
    written, calls = (results.sum_of_spans(field, *clickhouse) for field in ("written_bytes", "write_calls"))
    spooled = results.sum_of_spans("written_bytes", "collector")
    stored = results.stored_bytes_a_span
    disk = f"ClickHouse, {SERVER_DISK_GIB:,} GiB for {DAYS} days"
    gateway_calls = at_peak * UTILISATION / results.cpu_s("gateway")
    each = (
        Limit("collector, one core", at_peak * UTILISATION / results.cpu_s("collector"), "another collector"),
        Limit("pipeline, one core", 86_400 * UTILISATION / results.cpu_s("pipeline"), "another pipeline"),
        Limit("gateway, one core", gateway_calls / CAPTURED_SHARE, "another gateway, with engines"),
        Limit(f"ClickHouse, {SERVER_CORES} cores", 86_400 * SERVER_CORES * UTILISATION / server, "a shard"),
        Limit(disk, SERVER_DISK_GIB * GIB * DISK_FILL / DAYS / stored, "a larger disk, or a shard; or keep fewer days"),
        Limit("ClickHouse's volume, 125 MiB/s", at_peak * VOLUME_BYTES_S / written, "a faster volume, then a shard"),
        Limit(
            "ClickHouse's volume, 3,000 calls/s",
            at_peak * VOLUME_OPERATIONS_S / calls,
            "a faster volume, then a shard",
        ),
        Limit("a collector's volume, 125 MiB/s", at_peak * VOLUME_BYTES_S / spooled, "another collector"),
    )
    return sorted(each, key=lambda limit: limit.spans_a_day)


def tables(results: Results, prices: Prices = PRICES) -> str:
    """Return the tables of the page, in Markdown."""
    parts = (_summary(results, prices), _parts(results, prices), _limits(results, prices), _measured(results))
    return "\n\n".join("\n".join(part) for part in parts)


def renew_page(results: Results) -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n\n{tables(results)}\n\n{END}", text), encoding="utf-8")


def _summary(results: Results, prices: Prices) -> Iterator[str]:
    yield f"### Machines and price of a month, {DAYS} days of spans"
    yield ""
    yield "| spans a day | layout | machines | vCPU | memory | disk | dollars a month | dollars for a million spans |"
    yield "|---|---|---|---|---|---|---|---|"
    for spans_a_day, copies, machines in _layouts(results, prices):
        price = sum(each.price(prices) for each in machines)
        yield (
            f"| {spans_a_day:,} | {_name(copies)} | {sum(each.machines for each in machines)} "
            f"| {sum(each.machines * each.cores for each in machines)} "
            f"| {_gib(sum(each.machines * each.memory_gib for each in machines))} "
            f"| {_gib(sum(each.machines * each.disk_gib for each in machines))} "
            f"| {_rounded(price)} | {price / (spans_a_day / 1e6 * 365 / 12):.2f} |"
        )
    yield ""
    yield (
        f"Prices of {prices.date}: {prices.vcpu_hour} dollars a vCPU-hour, {prices.gib_hour} a GiB-hour of memory, "
        f"{prices.gib_month} a GiB-month of block storage. Peak: {prices.peak:g} times the mean."
    )


def _parts(results: Results, prices: Prices) -> Iterator[str]:
    yield "### Machines of each part"
    yield ""
    yield "| spans a day | layout | part | machines | vCPU each | memory each | disk each | busy cores of all |"
    yield "|---|---|---|---|---|---|---|---|"
    for spans_a_day, copies, machines in _layouts(results, prices):
        for each in machines:
            busy = f"{each.busy_cores:.2f}" if each.busy_cores else "not measured"
            yield (
                f"| {spans_a_day:,} | {_name(copies)} | {each.part} | {each.machines} | {each.cores} "
                f"| {_gib(each.memory_gib)} | {_gib(each.disk_gib)} | {busy} |"
            )


def _limits(results: Results, prices: Prices) -> Iterator[str]:
    yield "### Saturation of one of each, the first one first"
    yield ""
    yield "| one | is full at spans a day | add |"
    yield "|---|---|---|"
    for limit in limits(results, prices):
        yield f"| {limit.name} | {_rounded(limit.spans_a_day / 1e6)} million | {limit.next_step} |"


def _measured(results: Results) -> Iterator[str]:
    yield "### Measured cost of a million spans"
    yield ""
    yield "| part | CPU-seconds | MB written | write calls | peak memory |"
    yield "|---|---|---|---|---|"
    for name, usage in results.parts.items():
        label = f"{name}, a million calls" if name == "gateway" else name
        yield (
            f"| {label} | {usage['cpu_s']:,.0f} | {usage['written_bytes'] / 1e6:,.0f} | {usage['write_calls']:,} "
            f"| {usage['peak_bytes'] >> 20:,} MiB |"
        )
    groups = ", ".join(f"{group} {size / 1e6:,.0f}" for group, size in results.stored_bytes.items())
    yield ""
    yield (
        f"Compressed bytes a span in the tables: {groups}; together {results.stored_bytes_a_span:,.0f}. One query of a "
        f"page of the dashboard: {results.page_cpu_s * 1e3:.0f} ms of ClickHouse's CPU time."
    )
    yield ""
    pipelines = "two pipelines" if results.pipelines > 1 else "one pipeline"
    yield (
        f"Measured on {results.measured} with {results.spans:,} spans on {results.processors} cores. Two of everything "
        f"({pipelines}) with the same spans: where they differ most, {results.cpu_ratio:.2f} times the predicted "
        f"CPU-seconds and {results.bytes_ratio:.2f} times the predicted bytes."
    )


def _layouts(results: Results, prices: Prices) -> Iterator[tuple[int, int, Sequence[Machines]]]:
    for spans_a_day in SPANS_A_DAY:
        for copies in (1, 2):
            yield spans_a_day, copies, layout(results, spans_a_day, prices, copies=copies)


def _name(copies: int) -> str:
    return "smallest" if copies == 1 else "a machine may be lost"


def _gib(size: float) -> str:
    return f"{size / 1_024:,.1f} TiB" if size >= 1_024 else f"{size:,.4g} GiB"


def _rounded(number: float) -> str:
    digits = max(0, math.floor(math.log10(number)) - 1)
    return f"{round(number, -digits):,.0f}" if digits else f"{number:.2g}"

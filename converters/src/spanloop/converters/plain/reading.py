"""Reads what was said in traces that may be plain, each in the first way that takes it.

``silent`` where nothing was recorded, ``talk`` where calls stand by themselves, ``chains`` where each goes on with the
one before, ``lanes`` for all others.
"""

from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..attributes import Mask
from ..attributes import Rows as Numbers
from ..finish_reasons import canonical_finish_reason
from ..messages import MalformedMessagesError
from ..normalise import canonical_tools
from .chains import is_next, read_chains
from .lanes import Answer, Calls, Lane, Reader, Steps, Tools
from .pieces import NotPlainError
from .screen import TELLS_OF_NO_ERROR
from .silent import can_be_silent, silent_steps
from .talk import NO_TALK, Said, Talk, followed, read_talks

TOOL_TOLD: Final = ("tool_call_id", "tool_name", "tool_result", "Duration", "SpanId")
_ASKS: Final = '"tool_call"'
_TOOL_COLUMNS: Final = (*TOOL_TOLD, TELLS_OF_NO_ERROR.alias("no"))


class Reading(NamedTuple):
    """What was read; of the lists, one item a plain trace."""

    is_plain: Mask
    """Of each trace given."""
    calls: pl.DataFrame
    """Of those that are: with the finish reason, the tools and the step, and what ``lanes.Steps`` found."""
    lanes: list[list[Lane | Said]]
    answers: list[list[Answer]]
    talks: list[Talk]
    said: AbstractSet[str]
    """All answers in words, stripped; empty where no trace is a talk."""


def read(whole: pl.DataFrame, calls: pl.DataFrame, tools: pl.DataFrame, entries: pl.DataFrame) -> Reading:
    """Read each trace.

    Args:
        whole: See ``screen.traces``.
        calls: Their model calls, with captures.
        tools: Their tools' spans: ``trace`` and ``TOOL_TOLD``.
        entries: What the calls count: see ``Normalised.entries``.
    """
    reader = _Reading(whole, calls, tools)
    is_silent = whole["is_silent"].to_numpy()
    if is_silent.any():
        reader.silent(is_silent)
    reader.talks(~is_silent, entries)
    reader.chains(~is_silent & ~reader.is_plain)
    reader.lanes(~is_silent & ~reader.is_plain)
    return reader.all()


class _Reading:
    """What has been read so far."""

    def __init__(self, whole: pl.DataFrame, calls: pl.DataFrame, tools: pl.DataFrame) -> None:
        given = calls["tools"].unique(maintain_order=True)
        self._definitions = [_definitions(text) for text in given.to_list()]
        self._numbers = calls["tools"].replace_strict(
            given, pl.int_range(given.len(), eager=True), return_dtype=pl.UInt32
        )
        self._counts: Numbers = whole["calls"].to_numpy().astype(np.int64)
        begins = np.cumsum(self._counts) - self._counts
        self._known = calls.with_columns(
            _canonical_reasons(calls["finish_reasons"]).alias("finish_reason"),
            pl.Series("tools", self._definitions, dtype=pl.String).gather(self._numbers),
            pl.Series("step", np.arange(calls.height) - np.repeat(begins, self._counts), dtype=pl.UInt32),
        )
        self._traces: Numbers = whole["trace"].to_numpy()
        self._tools = tools
        self._told: list[tuple[Numbers, pl.DataFrame]] = []
        self._lanes: dict[int, list[Lane | Said]] = {}
        self._answers: dict[int, list[Answer]] = {}
        self._talks: dict[int, Talk] = {}
        self._texts: list[str] = []
        self.is_plain: Mask = np.zeros(whole.height, dtype=np.bool_)

    def all(self) -> Reading:
        """What was read, in the order of the traces."""
        rows = np.concatenate([rows for rows, _ in self._told]) if self._told else np.zeros(0, dtype=np.int64)
        told = [frame.select(self._told[0][1].columns) for _, frame in self._told]
        calls = self._calls(self.is_plain)[1]
        if told:
            whole = told[0] if len(told) == 1 else pl.concat(told)[np.argsort(rows)]
            calls = calls.with_columns(whole.get_columns())
        traces: list[int] = np.flatnonzero(self.is_plain).tolist()
        return Reading(
            self.is_plain,
            calls,
            [self._lanes.get(trace, []) for trace in traces],
            [self._answers.get(trace, []) for trace in traces],
            [self._talks.get(trace, NO_TALK) for trace in traces],
            set(self._texts) if any(talk.said for talk in self._talks.values()) else frozenset(),
        )

    def silent(self, traces: Mask) -> None:
        """Read those in which nobody recorded what was said."""
        _, calls = self._calls(traces)
        counts = self._counts[traces]
        can_be = np.logical_and.reduceat(can_be_silent(calls), np.cumsum(counts) - counts)
        self._take(traces, np.flatnonzero(traces)[can_be].tolist(), silent_steps(calls))

    def talks(self, traces: Mask, entries: pl.DataFrame) -> None:
        """Read those of which every call stands by itself, and asks for no tool."""
        asks = self._known.select(pl.col("output_messages").str.contains(_ASKS, literal=True)).to_series().to_numpy()
        traces = traces & ~np.logical_or.reduceat(asks, np.cumsum(self._counts) - self._counts)
        if not traces.any():
            return
        _, calls = self._calls(traces)
        found = read_talks(calls, entries)
        if found is None:
            return
        for trace, number in zip(self._traces[traces].tolist(), np.flatnonzero(traces).tolist(), strict=True):
            if trace in found.talks:
                talk = found.talks[trace]
                self._lanes[number], self._talks[number] = [*talk.said], talk
        self._take(traces, [*self._talks], found.told)
        self._texts += found.texts

    def chains(self, traces: Mask) -> None:
        """Read those of which every call goes on where the one before it ended."""
        if not traces.any():
            return
        rows, calls = self._calls(traces)
        found = read_chains(calls, self._tools)
        if found is None:
            return
        numbers: list[int] = np.flatnonzero(traces)[found.is_read].tolist()
        for number, said in zip(numbers, found.said, strict=True):
            self._lanes[number] = [one._replace(first=int(rows[one.first])) for one in said]
        self._answers |= dict(zip(numbers, found.answers, strict=True))
        self._take(traces, numbers, found.told)
        self._texts += found.texts

    def lanes(self, traces: Mask) -> None:
        """Read any others."""
        if not traces.any():
            return
        rows, calls = self._calls(traces)
        own = self._traces[traces]
        tools = self._tools.filter(pl.col("trace").is_in(pl.Series(own).implode()))
        ends: list[int] = np.searchsorted(tools["trace"].to_numpy(), own, side="right").tolist()
        reader = Reader(
            _columns(calls, self._numbers.gather(rows)),
            Tools(*(column.to_list() for column in tools.select(_TOOL_COLUMNS))),
            self._definitions,
        )
        read: list[int] = []
        numbers: list[int] = np.flatnonzero(traces).tolist()
        for number, places, first, end in zip(numbers, self._ranges(traces), [0, *ends], ends, strict=False):
            try:
                found = reader.read(places, range(first, end))
            except NotPlainError:
                continue
            read.append(number)
            for lane in found.lanes:
                lane.first = int(rows[lane.first])
            self._lanes[number], self._answers[number] = [*found.lanes], found.answers
        self._take(traces, read, _spoken(calls, reader.steps))
        self._texts += reader.steps.answer

    def _calls(self, traces: Mask) -> tuple[Numbers, pl.DataFrame]:
        """The calls of ``traces``, and which of all calls they are."""
        if traces.all():
            return np.arange(self._known.height), self._known
        chosen = np.repeat(traces, self._counts)
        return np.flatnonzero(chosen), self._known.filter(pl.Series(chosen))

    def _ranges(self, traces: Mask) -> list[range]:
        """Where among their calls those of each of ``traces`` are."""
        ends: list[int] = np.cumsum(self._counts[traces]).tolist()
        return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def _take(self, given: Mask, read: list[int], told: pl.DataFrame) -> None:
        """Take as plain what was read of the traces that were given.

        Args:
            given: The traces that were given.
            read: Numbers of those that were read.
            told: What was found out about the calls of all of them, or of those that were read.
        """
        rows = np.flatnonzero(np.repeat(given, self._counts))
        is_read = np.zeros(len(given), dtype=np.bool_)
        is_read[read] = True
        kept = np.repeat(is_read, self._counts)[rows]
        whole = told.with_columns(first=pl.Series(rows, dtype=pl.UInt32).gather(told["first"]))
        self._told.append((rows[kept], whole if whole.height == kept.sum() else whole.filter(pl.Series(kept))))
        self.is_plain |= is_read


def _definitions(text: str) -> str | None:
    try:
        return canonical_tools(text)
    except (MalformedMessagesError, RecursionError):
        return None


def _canonical_reasons(texts: pl.Series) -> pl.Series:
    given = texts.unique()
    reasons = [canonical_finish_reason(text) for text in given.to_list()]
    return texts.replace_strict(given, pl.Series(reasons, dtype=pl.String), return_dtype=pl.String)


def _columns(calls: pl.DataFrame, tools: pl.Series) -> Calls:
    return Calls(
        start_ns=calls["Timestamp"].to_list(),
        end_ns=(calls["Timestamp"] + calls["Duration"]).to_list(),
        service_name=calls["ServiceName"].to_list(),
        is_next=calls.select(is_next()).to_series().to_list(),
        is_streaming=calls["streams"].to_list(),
        finish_reason=calls["finish_reason"].to_list(),
        input=calls["input_messages"].to_list(),
        output=calls["output_messages"].to_list(),
        system=calls["system_instructions"].to_list(),
        agent=calls["agent"].to_list(),
        is_exact=calls["is_exact"].to_list(),
        tools=tools.to_list(),
    )


def _spoken(calls: pl.DataFrame, steps: Steps) -> pl.DataFrame:
    """What was found out about each call: see ``silent.silent_steps``."""
    states = pl.Series("state", steps.state, dtype=pl.String) + "]"
    return pl.DataFrame(
        [
            states,
            pl.Series("first", steps.first, dtype=pl.UInt32),
            pl.Series("action", steps.action, dtype=pl.String),
            pl.Series("tool_results", steps.results, dtype=pl.String),
            pl.Series("tool_call_count", steps.tool_call_count, dtype=pl.UInt32),
            pl.Series("finish_reason", steps.finish_reason, dtype=pl.String),
            pl.Series("is_orphan", steps.is_orphan, dtype=pl.Boolean),
            *followed(calls, states, pl.Series(steps.following, dtype=pl.UInt32)),
        ]
    )

"""Which traces are plain episodes, and what is in them.

``read_plain`` asks ``screen`` about all of them at once and ``lanes`` about those that are left. Whether a plain
episode has anything to do with one that is not is asked twice: here of the plain ones among themselves (an agent used
as a tool), and by ``touched`` once the others are stitched.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, cast

import numpy as np
import polars as pl

from ..captures import Generations
from ..finish_reasons import canonical_finish_reason
from ..messages import MalformedMessagesError, digest, parse_json
from ..normalise import canonical_tools
from ..ragged import flat
from ..span_tokens import Carried
from ..spans import Span, SpanKind
from ..stitch import SpanKey
from ..stitch.base import answered_ids, last_assistant
from ..stitch.message_prefix import after
from ..usual import Call
from .lanes import Answer, Calls, Lane, Reader, Steps, Tools
from .pieces import NotPlainError
from .screen import IS_CALL, IS_TOOL, TELLS_OF_NO_ERROR, by_trace, traces, with_captures
from .silent import can_be_silent, silent_steps
from .talk import NO_TALK, Said, Talk, TalkReader, asks_for_nothing

_CONTEXT: Final = ("trace", "TraceId", "SpanId", "kind", "response_id", "session_id", "conversation_id")

_TOOL_TOLD: Final = ("tool_call_id", "tool_name", "tool_result", "Duration", "SpanId")
_TOOL_COLUMNS: Final = (*_TOOL_TOLD, TELLS_OF_NO_ERROR.alias("no"))


class Plain(NamedTuple):
    """Plain episodes, a trace each."""

    episodes: pl.DataFrame
    """By ``trace``: see ``screen.traces``; also ``group_id``."""
    calls: pl.DataFrame
    """Their model calls by trace and ``step``, with their captures and what ``lanes.Steps`` found."""
    context: pl.DataFrame
    """Their other spans."""
    lanes: list[list[Lane | Said]]
    """The conversations of each episode, by their first call."""
    answers: list[list[Answer]]
    """What the tools of each episode answered."""
    talks: list[Talk]
    """What is special of each episode whose calls stand by themselves; empty for the others."""
    said: AbstractSet[str]
    """All answers in words, stripped."""

    def without(self, trace_ids: Collection[str]) -> "Plain":
        """Less the episodes of some traces."""
        if not trace_ids:
            return self
        is_kept = ~pl.col("TraceId").is_in(list(trace_ids))
        kept = self.episodes.select(is_kept).to_series().to_list()
        return Plain(
            self.episodes.filter(is_kept),
            self.calls.filter(is_kept),
            self.context.filter(is_kept),
            [lanes for lanes, stays in zip(self.lanes, kept, strict=True) if stays],
            [answers for answers, stays in zip(self.answers, kept, strict=True) if stays],
            [talk for talk, stays in zip(self.talks, kept, strict=True) if stays],
            self.said,
        )

    def only(self, trace_ids: Collection[str]) -> "Plain":
        """The episodes of some traces."""
        return self.without(set(self.episodes["TraceId"]) - set(trace_ids))

    @property
    def captures(self) -> pl.Series:
        """The rows of the captures that the calls have."""
        return self.calls["capture"].drop_nulls()

    def places(self) -> pl.DataFrame:
        """Where scores may find the episodes: see ``rewards.join_scores``."""
        columns = ("trace", "TraceId", "SpanId", "response_id", "session_id", "conversation_id", "step")
        spans = pl.concat(
            [self.calls.select(columns), self.context.with_columns(step=pl.lit(None, dtype=pl.UInt32)).select(columns)]
        )
        own = self.episodes.select("trace", "episode_id", pl.col("episode_key").alias("key"))
        return spans.join(own, on="trace", how="left").select(
            pl.col("TraceId").alias("trace_id"),
            pl.col("SpanId").alias("span_id"),
            *("response_id", "session_id", "conversation_id", "episode_id", "step"),
            pl.col("key").alias("episode_key"),
        )


def read_plain(
    told: pl.DataFrame, captured: Generations, carried: Carried, bad_scores: pl.DataFrame, *, session_is_episode: bool
) -> Plain | None:
    """The plain episodes among ``told``; None without any.

    Args:
        told: ``Normalised.told``.
        captured: What the gateway captured.
        carried: What spans carry themselves.
        bad_scores: Rows of ``scores`` that may say failure.
        session_is_episode: Whether ``session.id`` joins traces.
    """
    rows = by_trace(told)
    whole = traces(rows, session_is_episode=session_is_episode)
    calls = with_captures(rows.filter(IS_CALL), captured, carried)
    odd = pl.concat([calls.filter(pl.col("is_odd"))["trace"], _scored(rows, bad_scores)])
    may_be = whole["is_plain"] & ~whole["trace"].is_in(odd.implode())
    if not may_be.any():
        return None
    if not may_be.all():
        rows = rows.filter(may_be.gather(rows["trace"]))
        calls = calls.filter(may_be.gather(calls["trace"]))
    read = _read(whole.filter(may_be), calls, rows.select("trace", "kind", *_TOOL_TOLD).filter(IS_TOOL))
    context = rows.select(*_CONTEXT).filter(~IS_CALL & pl.col("trace").is_in(read.episodes["trace"].implode()))
    plain = read._replace(context=context)
    plain = plain.without(_diverged(plain.calls, carried.beside(captured.tokens)) | _used_as_tools(plain))
    asked = {request.id for answers in plain.answers for request, _ in answers} if plain.said else set[str]()
    return plain.without(_awaiting(plain, plain.said, asked))


def _scored(rows: pl.DataFrame, scores: pl.DataFrame) -> pl.Series:
    """Traces that one of ``scores`` may mean, whatever it is that the score names."""
    found = [rows["trace"].clear()]
    for column, own in (
        ("trace_id", "TraceId"),
        ("response_id", "response_id"),
        ("episode_key", "episode_key"),
        ("session_id", "session_id"),
        ("session_id", "conversation_id"),
    ):
        named = scores.filter(pl.col(column).fill_null("") != "")[column].unique()
        if not named.is_empty():
            found.append(rows.filter(pl.col(own).is_in(named.implode()))["trace"])
    return pl.concat(found).unique()


def _read(whole: pl.DataFrame, calls: pl.DataFrame, tools: pl.DataFrame) -> Plain:
    given = calls["tools"].unique(maintain_order=True)
    definitions = [_definitions(text) for text in given.to_list()]
    numbers = calls["tools"].replace_strict(given, pl.int_range(given.len(), eager=True), return_dtype=pl.UInt32)
    counts = whole["calls"].to_numpy().astype(np.int64)
    known = calls.with_columns(
        _canonical_reasons(calls["finish_reasons"]).alias("finish_reason"),
        pl.Series("tools", definitions, dtype=pl.String).gather(numbers),
        pl.Series("step", np.arange(calls.height) - np.repeat(np.cumsum(counts) - counts, counts), dtype=pl.UInt32),
    )
    told: list[pl.DataFrame] = []
    lanes: list[list[Lane | Said]] = [[] for _ in range(whole.height)]
    answers: list[list[Answer]] = [[] for _ in range(whole.height)]
    talks = [NO_TALK] * whole.height
    said: AbstractSet[str] = frozenset()
    is_plain = np.ones(whole.height, dtype=np.bool_)
    is_silent = whole["is_silent"].to_numpy()
    if not is_silent.all():
        column = _columns(known, numbers)
        reader = Reader(
            column,
            Tools(*(column.to_list() for column in tools.select(_TOOL_COLUMNS))),
            definitions,
        )
        ends: list[int] = np.cumsum(counts).tolist()
        tool_ends = np.searchsorted(tools["trace"].to_numpy(), whole["trace"].to_numpy(), side="right").tolist()
        numbers_of: list[int] = np.flatnonzero(~is_silent).tolist()
        ranges = {number: range(ends[number - 1] if number else 0, ends[number]) for number in numbers_of}
        may_talk = {
            number for number, places in ranges.items() if all(asks_for_nothing(column.output[call]) for call in places)
        }
        talker = TalkReader(column, reader.steps, definitions, [ranges[number] for number in sorted(may_talk)])
        for number, places in ranges.items():
            first_tool = tool_ends[number - 1] if number else 0
            try:
                talk = talker.read(places) if number in may_talk else None
                if talk is not None:
                    lanes[number], talks[number] = [*talk.said], talk
                else:
                    found = reader.read(places, range(first_tool, tool_ends[number]))
                    lanes[number], answers[number] = [*found.lanes], found.answers
            except NotPlainError:
                is_plain[number] = False
        told.append(_spoken(known, reader.steps))
        said = set(reader.steps.answer) if any(talk.said for talk in talks) else set[str]()
    if is_silent.any():
        is_plain[is_silent & ~np.logical_and.reduceat(can_be_silent(known), np.cumsum(counts) - counts)] = False
        told.append(silent_steps(known))
    if len(told) > 1:
        of_call = pl.Series(np.repeat(is_silent, counts), dtype=pl.Boolean)
        spoken, silent = told
        told = [
            spoken.select(
                pl.when(of_call).then(silent[name]).otherwise(pl.col(name)).alias(name) for name in spoken.columns
            )
        ]
    read = known.with_columns(told[0].get_columns())
    episodes = whole
    if not is_plain.all():
        read = read.filter(pl.Series(np.repeat(is_plain, counts), dtype=pl.Boolean))
        episodes = whole.filter(pl.Series(is_plain, dtype=pl.Boolean))
        lanes = [found for found, is_read in zip(lanes, is_plain, strict=True) if is_read]
        answers = [found for found, is_read in zip(answers, is_plain, strict=True) if is_read]
        talks = [found for found, is_read in zip(talks, is_plain, strict=True) if is_read]
    first_calls = read.filter(pl.col("step") == 0)
    groups = _groups(episodes, lanes, first_calls["tools"])
    return Plain(episodes.with_columns(groups), read, calls.clear(), lanes, answers, talks, said)


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
    ended = pl.col("Timestamp") + pl.col("Duration")
    is_later = (ended.shift() <= pl.col("Timestamp")) & (pl.col("Timestamp").shift() < pl.col("Timestamp"))
    alike = [pl.col(name) == pl.col(name).shift() for name in ("trace", "ServiceName", "system_instructions")]
    is_next = pl.all_horizontal(is_later, *alike).fill_null(value=False)
    return Calls(
        start_ns=calls["Timestamp"].to_list(),
        end_ns=(calls["Timestamp"] + calls["Duration"]).to_list(),
        service_name=calls["ServiceName"].to_list(),
        is_next=calls.select(is_next).to_series().to_list(),
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
    if states.null_count():
        states = states.fill_null(calls["input_messages"])
    following = pl.Series(steps.following, dtype=pl.UInt32)
    previous = np.full(calls.height, -1)
    previous[following.drop_nulls().to_numpy()] = np.flatnonzero(following.is_not_null().to_numpy())
    before = pl.Series(previous, dtype=pl.Int64).replace(-1, None).cast(pl.UInt32)
    return pl.DataFrame(
        [
            states,
            states.gather(following).fill_null("").alias("next_state"),
            following.is_null().alias("is_last"),
            pl.Series("first", steps.first, dtype=pl.UInt32),
            pl.Series("action", steps.action, dtype=pl.String),
            pl.Series("tool_results", steps.results, dtype=pl.String),
            pl.Series("tool_call_count", steps.tool_call_count, dtype=pl.UInt32),
            pl.Series("finish_reason", steps.finish_reason, dtype=pl.String),
            pl.Series("is_orphan", steps.is_orphan, dtype=pl.Boolean),
            before.is_not_null().alias("continues"),
            calls["capture"].gather(before).alias("before"),
            (calls["is_exact"].gather(before) != calls["is_exact"]).fill_null(value=False).alias("is_broken"),
        ]
    )


def _groups(episodes: pl.DataFrame, lanes: Sequence[Sequence[Lane | Said]], tools: pl.Series) -> pl.Series:
    """The group of each episode: see ``rows.group_of``."""
    known = [
        digest([definitions, *_opening(found[0])]).hex() if found and not task_id else None
        for task_id, found, definitions in zip(episodes["task_id"], lanes, tools, strict=True)
    ]
    task_ids = episodes.select(pl.when(pl.col("task_id") != "").then("task_id")).to_series()
    by_start = pl.Series("group_id", known, dtype=pl.String)
    return task_ids.fill_null(by_start).fill_null(episodes["episode_id"]).alias("group_id")


def _opening(lane: Lane | Said) -> Iterator[str]:
    *system, user = lane.start
    for found in system:
        yield f"system:{found.hex()}"
    yield f"user:{user.hex()}"


def _diverged(calls: pl.DataFrame, tokens: pl.DataFrame) -> set[str]:
    """Traces in which the tokens of a call do not go on where those of the call before ended."""
    found = set(calls.filter(pl.col("is_broken"))["TraceId"])
    whole = calls.filter(pl.col("continues") & pl.col("is_exact")).select("TraceId", "before", "capture").drop_nulls()
    if whole.is_empty():
        return found
    prompts, prompt_ends = _bytes(tokens["prompt_token_ids"])
    sampled, sampled_ends = _bytes(tokens["response_token_ids"])
    pairs_of_rows: Iterator[tuple[str, int, int]] = whole.iter_rows()
    for trace_id, one, other in pairs_of_rows:
        prompt = bytes(prompts[prompt_ends[one] : prompt_ends[one + 1]])
        response = bytes(sampled[sampled_ends[one] : sampled_ends[one + 1]])
        following = bytes(prompts[prompt_ends[other] : prompt_ends[other + 1]])
        if not (following.startswith(prompt) and following.startswith(response, len(prompt))):
            found.add(trace_id)
    return found


def _bytes(lists: pl.Series) -> tuple[memoryview, list[int]]:
    """All lists of token ids as bytes, one behind the other, and where each begins (and the last one ends)."""
    values, offsets = flat(lists)
    ends: list[int] = (offsets * values.itemsize).tolist()
    return values.view(np.uint8).data, ends


def _used_as_tools(plain: Plain) -> set[str]:
    """Traces of which one holds a conversation that a tool call of another one may have started."""
    trace_ids = plain.episodes["TraceId"].to_list()
    told: dict[tuple[str, str], set[str]] = defaultdict(set)
    for trace_id, lanes in zip(trace_ids, plain.lanes, strict=True):
        for lane in lanes:
            told[lane.question.strip(), lane.answer].add(trace_id)
    said = {answer for _, answer in told}
    found: set[str] = set()
    for trace_id, answers in zip(trace_ids, plain.answers, strict=True):
        for asked, content in answers:
            if content.strip() in said:
                for text in _texts(asked):
                    others = told.get((text, content.strip()), set()) - {trace_id}
                    if others:
                        found |= others | {trace_id}
    return found


def _awaiting(plain: Plain, said: AbstractSet[str], asked: AbstractSet[str]) -> set[str]:
    """Traces with a call that may go on behind an answer or a tool call of another one."""
    return {
        trace_id
        for trace_id, talk in zip(plain.episodes["TraceId"], plain.talks, strict=True)
        if not (talk.awaits.isdisjoint(said) and talk.answered.isdisjoint(asked))
    }


def _texts(asked: Call) -> Iterator[str]:
    """The texts among the arguments of a call."""
    for value in asked.arguments.values():
        if isinstance(value, str) and value.strip():
            yield value.strip()


def touched(plain: Plain, spans: Iterable[Span], parents: Mapping[SpanKey, SpanKey]) -> set[str]:
    """Plain traces that may belong to an episode of other spans: a call continues theirs, or an agent is a tool.

    Args:
        plain: What was thought to be plain.
        spans: All other spans.
        parents: Call → the call among ``spans`` that it continues.
    """
    calls = [span for span in spans if span.kind is SpanKind.LLM]
    if not calls or not plain.lanes:
        return set()
    said = {message.text.strip() for call in calls for message in call.output}
    asked = {request.id for call in calls for message in call.output for request in message.tool_calls}
    return _continued(plain, calls, parents) | _tools_of(plain, calls) | _awaiting(plain, said, asked)


def _continued(plain: Plain, calls: Sequence[Span], parents: Mapping[SpanKey, SpanKey]) -> set[str]:
    known = {call.key: call for call in calls}
    identities: set[str] = set()
    starts: set[tuple[bytes, ...]] = set()
    for call in calls:
        position, answered = last_assistant(call), answered_ids(call)
        if position is None and not answered:
            continue
        parent = known.get(parents.get(call.key, ("", "")))
        if parent is None or position is None or not _is_settled(call, position, answered, parent):
            identities.update(answered)
            starts.add(_start(call))
    if not starts:
        return set()
    return {
        trace_id
        for trace_id, lanes, answers in zip(plain.episodes["TraceId"], plain.lanes, plain.answers, strict=True)
        if any(lane.start in starts for lane in lanes) or any(asked.id in identities for asked, _ in answers)
    }


def _is_settled(call: Span, position: int, answered: Sequence[str], parent: Span) -> bool:
    """Whether no other trace can have a better claim to being what ``call`` continues."""
    if parent.trace_id != call.trace_id or call.input_chain[position] not in after(parent):
        return False
    return not answered or any(asked.id == answered[0] for said in parent.output for asked in said.tool_calls)


def _start(call: Span) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for message in call.input:
        found.append(message.digest)
        if message.role == "user":
            break
    return tuple(found)


def _tools_of(plain: Plain, calls: Sequence[Span]) -> set[str]:
    questions = {next((said.text.strip() for said in call.input if said.role == "user"), "") for call in calls}
    said = {call.output[0].text.strip() for call in calls if call.output}
    arguments: set[str] = set()
    responses: set[str] = set()
    for call in calls:
        position = last_assistant(call)
        if position is not None:
            for asked in call.input[position].tool_calls:
                if asked.is_valid:
                    values = parse_json(asked.arguments)
                    arguments |= {value.strip() for value in _values(values) if isinstance(value, str)}
            responses |= {
                response.content.strip()
                for message in call.input[position + 1 :]
                for response in message.tool_responses
            }
    return {
        trace_id
        for trace_id, lanes, answers in zip(plain.episodes["TraceId"], plain.lanes, plain.answers, strict=True)
        if any(lane.answer in responses and lane.question.strip() in arguments for lane in lanes)
        or any(
            content.strip() in said and any(text in questions for text in _texts(asked)) for asked, content in answers
        )
    }


def _values(arguments: object) -> Iterable[object]:
    return cast("dict[str, object]", arguments).values() if isinstance(arguments, dict) else ()

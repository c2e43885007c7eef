"""Which traces are plain episodes, and what is in them.

``read_plain`` asks ``screen`` about all of them at once and ``lanes`` about those that are left. Whether a plain
episode has anything to do with one that is not is asked twice: here of the plain ones among themselves (an agent used
as a tool), and by ``touched`` once the others are stitched.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, cast

import polars as pl

from ..captures import Generations
from ..messages import digest, parse_json
from ..normalise import Normalised
from ..ragged import as_bytes
from ..span_tokens import Carried
from ..spans import Span, SpanKind
from ..stitch import SpanKey
from ..stitch.base import answered_ids, last_assistant
from ..stitch.message_prefix import after
from ..usual import Call
from .lanes import Answer, Lane
from .reading import TOOL_TOLD, read
from .screen import IS_CALL, IS_TOOL, by_trace, traces, with_captures
from .talk import Said, Talk

_CONTEXT: Final = ("trace", "TraceId", "SpanId", "kind", "response_id", "session_id", "conversation_id")


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
    normalised: Normalised,
    captured: Generations,
    carried: Carried,
    bad_scores: pl.DataFrame,
    *,
    session_is_episode: bool,
) -> Plain | None:
    """The plain episodes among what is ``normalised``; None without any.

    Args:
        normalised: All spans.
        captured: What the gateway captured.
        carried: What spans carry themselves.
        bad_scores: Rows of ``scores`` that may say failure.
        session_is_episode: Whether ``session.id`` joins traces.
    """
    rows = by_trace(normalised.told)
    whole = traces(rows, session_is_episode=session_is_episode)
    calls = with_captures(rows.filter(IS_CALL), captured, carried)
    odd = pl.concat([calls.filter(pl.col("is_odd"))["trace"], _scored(rows, bad_scores)])
    may_be = whole["is_plain"] & ~whole["trace"].is_in(odd.implode())
    if not may_be.any():
        return None
    if not may_be.all():
        rows = rows.filter(may_be.gather(rows["trace"]))
        calls = calls.filter(may_be.gather(calls["trace"]))
    tools = rows.select("trace", "kind", *TOOL_TOLD).filter(IS_TOOL)
    read = _read(whole.filter(may_be), calls, tools, normalised.entries)
    context = rows.select(*_CONTEXT).filter(~IS_CALL & pl.col("trace").is_in(read.episodes["trace"].implode()))
    plain = read._replace(context=context)
    plain = plain.without(_diverged(plain.calls, carried.beside(captured.tokens)) | _used_as_tools(plain))
    asked = {request.id for answers in plain.answers for request, _ in answers} if plain.said else set[str]()
    return plain.without(_awaiting(plain, plain.said, asked))


def _scored(rows: pl.DataFrame, scores: pl.DataFrame) -> pl.Series:
    """Traces that one of ``scores`` may mean, whatever it is that the score names."""
    found = [rows["trace"].clear()]
    if scores.is_empty():
        return found[0]
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


def _read(whole: pl.DataFrame, calls: pl.DataFrame, tools: pl.DataFrame, entries: pl.DataFrame) -> Plain:
    found = read(whole, calls, tools, entries)
    episodes = whole.filter(pl.Series(found.is_plain))
    first_calls = found.calls.filter(pl.col("step") == 0)
    groups = _groups(episodes, found.lanes, first_calls["tools"])
    return Plain(
        episodes.with_columns(groups), found.calls, calls.clear(), found.lanes, found.answers, found.talks, found.said
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
    pairs = calls.filter(pl.col("continues") & pl.col("is_exact")).select("TraceId", "before", "capture").drop_nulls()
    if pairs.is_empty():
        return found
    prompts, sampled = as_bytes(tokens["prompt_token_ids"]), as_bytes(tokens["response_token_ids"])
    prompt, response, after = pl.col("prompt").bin, pl.col("response"), pl.col("after").bin
    goes_on = after.starts_with(pl.col("prompt")) & (after.slice(prompt.size(), response.bin.size()) == response)
    broken = pl.DataFrame(
        [
            prompts.gather(pairs["before"]).alias("prompt"),
            sampled.gather(pairs["before"]).alias("response"),
            prompts.gather(pairs["capture"]).alias("after"),
        ]
    ).select(~goes_on)
    return found | set(pairs["TraceId"].filter(broken.to_series()))


def _used_as_tools(plain: Plain) -> set[str]:
    """Traces of which one holds a conversation that a tool call of another one may have started."""
    if not any(plain.answers):
        return set()
    trace_ids = plain.episodes["TraceId"].to_list()
    told: dict[tuple[str, str], set[str]] = defaultdict(set)
    for trace_id, lanes in zip(trace_ids, plain.lanes, strict=True):
        for lane in lanes:
            told[lane.question.strip(), lane.answer].add(trace_id)
    said = {answer for _, answer in told}
    if said.isdisjoint([content.strip() for answers in plain.answers for _, content in answers]):
        return set()
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
    found = _continued(plain, calls, parents) | _tools_of(plain, calls) | _awaiting(plain, said, asked)
    return found | _behind_silence(plain, calls)


def _behind_silence(plain: Plain, calls: Sequence[Span]) -> set[str]:
    """Traces with a call that may go on behind one whose answer nobody recorded: see ``stitch.untold``."""
    unsaid = {_start(call) for call in calls if call.input and not call.output and not call.has_failed}
    return {
        trace_id
        for trace_id, talk in zip(plain.episodes["TraceId"], plain.talks, strict=True)
        if any(said.start in unsaid for said in talk.said)
    }


def _continued(plain: Plain, calls: Sequence[Span], parents: Mapping[SpanKey, SpanKey]) -> set[str]:
    known = {call.key: call for call in calls}
    identities: set[str] = set()
    starts: set[tuple[bytes, ...]] = set()
    for call in calls:
        position, answered = last_assistant(call), answered_ids(call)
        if position is None and not any(message.tool_responses for message in call.input):
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

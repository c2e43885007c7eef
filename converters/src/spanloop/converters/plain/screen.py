"""Which traces may be plain: what can be told of all spans at once, in columns.

Invariant: a trace that passes, and that ``lanes``, ``talk`` or ``silent`` reads to its end, is an episode of its own
whose every call worked; why one may not be trained on can be told of it alone. Whatever could join it to another trace,
repeat one of its calls, fail in it or contradict its captures keeps it out. To be kept out costs time and nothing else.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ..captures import Generations
from ..span_tokens import Carried
from ..spans import SpanKind
from ..tool_envelopes import open_answer

Rows = npt.NDArray[np.int64]

IS_CALL: Final = pl.col("kind") == SpanKind.LLM.value
IS_TOOL: Final = pl.col("kind") == SpanKind.TOOL.value


def by_trace(told: pl.DataFrame) -> pl.DataFrame:
    """The rows of ``Normalised.told`` by trace, then by start and id.

    Adds ``trace`` (its number), ``is_odd`` (nothing with it is plain) and ``agent`` (name of the nearest agent), and
    takes the envelopes off what tools answered.
    """
    in_order = told if told["TraceId"].is_sorted() else told.sort("TraceId", maintain_order=True)
    rows = _without_envelopes(in_order).with_columns(trace=pl.col("TraceId").rle_id())
    parents = _parents(rows)
    is_call = rows.select(IS_CALL).to_series().to_numpy()
    above = nearest(parents, is_call)
    is_nested = is_call & (np.where(parents >= 0, above[parents], -1) >= 0)
    is_tool = rows.select(IS_TOOL).to_series().to_numpy()
    acting = nearest(parents, rows.select(pl.col("kind") != SpanKind.OTHER.value).to_series().to_numpy())
    around = np.where(parents >= 0, acting[parents], -1)
    is_nested |= is_tool & (around >= 0) & is_tool[around]
    names = rows["agent_name"]
    agents = nearest(parents, (names != "").to_numpy())
    agent = names.gather(pl.Series(agents).replace(-1, None)).fill_null("")
    return rows.with_columns(
        pl.Series("agent", agent),
        (pl.col("is_odd") | _is_odd() | pl.Series(is_nested)).alias("is_odd"),
    )


IS_SILENT: Final = (pl.col("input_messages") == "") & (pl.col("output_messages") == "")
"""Of a model call of which nobody recorded what was said."""


def _is_odd() -> pl.Expr:
    is_unread = (
        (pl.col("DroppedAttributesCount") > 0)
        | ((pl.col("input_messages") == "") != (pl.col("output_messages") == ""))
        | (IS_SILENT & (pl.col("system_instructions") != ""))
    )
    has_failed = pl.col("is_error") | (pl.col("error_type") != "") | pl.col("event_names").is_not_null()
    return has_failed | (IS_CALL & is_unread)


def _without_envelopes(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` with the answers of tools out of their envelopes; odd where one of those says that the tool failed."""
    result = pl.col("tool_result")
    at = rows.select((result.str.starts_with("{") | result.str.starts_with("content=")).arg_true()).to_series()
    if at.is_empty():
        return rows.with_columns(is_odd=pl.lit(value=False))
    answers = [open_answer(text) for text in rows["tool_result"].gather(at)]
    identities = [
        own or answer.tool_call_id for own, answer in zip(rows["tool_call_id"].gather(at), answers, strict=True)
    ]
    is_odd = pl.Series(np.zeros(rows.height, dtype=np.bool_)).scatter(at, [answer.has_failed for answer in answers])
    return rows.with_columns(
        rows["tool_result"].clone().scatter(at, [answer.content for answer in answers]),
        rows["tool_call_id"].clone().scatter(at, identities),
        is_odd.alias("is_odd"),
    )


_ERROR_WORDS: Final = (
    *("error", "except", "fail", "traceb", "exit", "crash", "abort", "interrupt", "throttl"),
    *("sh: ", "fatal: ", "panic: ", "econn", "enotf", "eacc", "err_", " problem", "not allowed"),
    *("could", "cannot", "can not", "can't", "unable", "not able", "did not", "didn't", "went wrong", "gone wrong"),
    *("d tool", "nown tool", "uch tool", "nown function", "uch function", "not found", "not ava", "not exist"),
    *("unavail", "not respond", "down", "offline", "unreach", "no route", "broken pipe", "bad request", "bad gateway"),
    *("denied", "forbidden", "authorized", "refused", "reset", "closed", "lost", "too many", "rate limit", "quota"),
    *("timed", "time out", "time-out", "timeout", "http", "payment required", "unprocessable", "conflict"),
    *("invalid", "missing", "malformed", "unsupported", "unrecognized"),
    *("exceeded", "exhausted", "notfound", "notexist", "fault", "disconnect", "errno", "[ssl", "curl: ", " tcp"),
    *(" udp", "deadline"),
    *("getaddr", "ora-", "panic", "no response", "too long", "took longer", "canceling statement", "hang up"),
    *("not known", "name resolution", "unexpected", "authenti", "credential", "expired", "revoked", "not valid"),
    *("insufficient", "limit reached", "positional", "is a required", "required argument", "required parameter"),
    *("required field", "required property", "is required", "must be", "not of type", "not permitted", "unknown "),
    *("not provided", "input should", "unmarshal", "deserialize", "mismatch", "expected ", "no attribute"),
    *("object is not", "out of range", "undefined method", "deadlock", "is locked", "database disk", "implemented"),
    *("d function", "no tool", "no function", "not defined", "status", "returned", "responded", "answered", "<html"),
    *("heavy load", "high load", "maintenance"),
)
"""No text without one of these tells of an error to ``error_texts``, whose patterns know ASCII letters only."""

TELLS_OF_NO_ERROR: Final = ~(
    pl.col("tool_result").str.contains_any(list(_ERROR_WORDS), ascii_case_insensitive=True)
    | pl.col("tool_result").str.contains("{", literal=True)
)


def _parents(rows: pl.DataFrame) -> Rows:
    """The row of each row's parent; -1 without one."""
    numbered = rows.select("trace", "SpanId", "ParentSpanId").with_row_index("row")
    found = numbered.join(
        numbered.select("trace", pl.col("SpanId").alias("ParentSpanId"), pl.col("row").alias("parent")),
        on=["trace", "ParentSpanId"],
        how="left",
        maintain_order="left",
    )
    return found["parent"].cast(pl.Int64).fill_null(-1).to_numpy()


def nearest(parents: Rows, has: npt.NDArray[np.bool_]) -> Rows:
    """For each row itself if it ``has``, else its nearest ancestor that does; -1 without one.

    Every round looks twice as far as the one before; after as many as there are bits in the number of rows, what is
    left are cycles.
    """
    found = np.where(has, np.arange(len(has)), -1)
    above = np.where(has, -1, parents)
    for _ in range(len(has).bit_length() + 1):
        open_rows = np.flatnonzero(above >= 0)
        if not len(open_rows):
            break
        via = above[open_rows]
        found[open_rows], above[open_rows] = found[via], np.where(found[via] >= 0, -1, above[via])
    return found


def traces(rows: pl.DataFrame, *, session_is_episode: bool) -> pl.DataFrame:
    """One row a trace, by ``trace``: whether it may be plain (``is_plain``), and what its episode has as a whole."""
    texts = ("episode_key", "task_id", "session_id", "conversation_id")
    told = {name: pl.col(name).filter(pl.col(name) != "").min() for name in texts}
    found = rows.group_by("trace", maintain_order=True).agg(
        pl.col("TraceId").first(),
        IS_CALL.sum().alias("calls"),
        (IS_CALL & IS_SILENT).sum().alias("silent"),
        pl.col("is_odd").any(),
        *(
            (value if _is_told(rows, name) else pl.lit("").first()).fill_null("").alias(name)
            for name, value in told.items()
        ),
        (pl.col("episode_key").max() if _is_told(rows, "episode_key") else pl.lit("").first()).alias("other_key"),
        pl.len().alias("span_count"),
        pl.col("Timestamp").min().alias("started_ns"),
        (pl.col("Timestamp") + pl.col("Duration")).max().alias("ended_ns"),
        pl.col("IngestedAt").max().alias("ingested_us"),
    )
    shared = [_shared(rows, "episode_key"), _shared(rows, "conversation_id"), _twice_recorded(rows)]
    if session_is_episode:
        shared.append(_shared(rows, "session_id"))
    is_shared = pl.col("trace").is_in(pl.concat(shared).implode())
    is_one = pl.col("episode_key") == pl.col("other_key")
    trace_ids, keys = found["TraceId"], rows["episode_key"].unique()
    is_ambiguous = pl.col("TraceId").is_in(keys.implode()) | pl.col("episode_key").is_in(trace_ids.implode())
    is_whole = (pl.col("silent") == 0) | (pl.col("silent") == pl.col("calls"))
    return found.with_columns(
        is_plain=(pl.col("calls") > 0) & is_whole & ~pl.col("is_odd") & is_one & ~is_shared & ~is_ambiguous,
        is_silent=pl.col("silent") > 0,
        episode_id=pl.when(pl.col("episode_key") != "").then("episode_key").otherwise("TraceId"),
    )


def _is_told(rows: pl.DataFrame, column: str) -> bool:
    return bool((rows[column] != "").any())


def _shared(rows: pl.DataFrame, column: str) -> pl.Series:
    """Traces that have a value of ``column`` in common with another one."""
    told = rows.filter(pl.col(column) != "").select("trace", column).unique()
    return told.filter(pl.col(column).is_duplicated())["trace"]


def _twice_recorded(rows: pl.DataFrame) -> pl.Series:
    """Traces with a call of a service in which several instrumentors record calls: see ``collapse``."""
    recorder = pl.when(pl.col("ScopeName") != "").then("ScopeName").otherwise("SpanName")
    calls = rows.filter(IS_CALL).select("trace", "ServiceName", recorder.alias("recorder"))
    scopes = calls.unique(["ServiceName", "recorder"])
    services = scopes.filter(pl.col("ServiceName").is_duplicated())["ServiceName"]
    named = rows.filter(IS_CALL & (pl.col("response_id") != "")).select("trace", "ServiceName", "response_id")
    repeated = named.filter(pl.struct("ServiceName", "response_id").is_duplicated())["trace"]
    return pl.concat([calls.filter(pl.col("ServiceName").is_in(services.implode()))["trace"], repeated])


def with_captures(calls: pl.DataFrame, captured: Generations, carried: Carried) -> pl.DataFrame:
    """``calls`` with the capture of each: ``capture`` (its row; null without one) and what is told with it.

    Sets ``is_odd`` where more than one, or one that contradicts the call, may belong to it. ``is_carried`` says that it
    is the span's own, and ``is_exact`` that it has log-probabilities.

    Args:
        calls: All model calls, whether they may be plain or not.
        captured: What the gateway captured.
        carried: What spans carry themselves; their rows come behind those of ``captured``.
    """
    told = captured.rows.select("trace_id", "parent_span_id", *_told(0), is_carried=pl.lit(value=False)).with_columns(
        _has_holes(captured.tokens).gather(captured.rows["row"]).alias("has_holes")
    )
    named = told.filter(pl.col("response_id") != "")
    only = named.filter(pl.col("response_id").is_unique()).drop("trace_id", "parent_span_id")
    own = carried.captured.rows.select(
        pl.col("trace_id").alias("TraceId"),
        pl.col("parent_span_id").alias("SpanId"),
        *_told(captured.tokens.height),
        is_carried=pl.lit(value=True),
        has_holes=pl.lit(value=False),
    ).drop("response_id")
    joined = _joined(calls, only, own)
    has_context = told.filter((pl.col("trace_id") != "") & (pl.col("parent_span_id") != ""))["trace_id"].unique()
    broken = pl.Series([trace_id for trace_id, _ in carried.problems], dtype=pl.String)
    is_uncertain = pl.col("response_id").is_in(named["response_id"].unique().implode()) | pl.col("TraceId").is_in(
        pl.concat([has_context, broken]).implode()
    )
    is_exact = pl.col("logprobs") > 0
    contradicts = (
        ~pl.col("is_complete")
        | (pl.col("logprobs") != pl.col("response_tokens"))
        | pl.col("has_holes")
        | ((pl.col("input_tokens") > 0) & (pl.col("input_tokens") != pl.col("prompt_tokens")))
        | ((pl.col("output_tokens") > 0) & (pl.col("output_tokens") != pl.col("response_tokens")))
    )
    is_empty = (pl.col("response_tokens") == 0) | (pl.col("prompt_tokens") == 0)
    is_repeated = pl.col("response_id").is_duplicated() & (pl.col("response_id") != "")
    is_odd = (
        pl.when(pl.col("capture").is_null())
        .then(is_uncertain)
        .when(pl.col("is_carried"))
        .then(is_uncertain | is_empty | (is_exact & contradicts))
        .otherwise(is_repeated | is_empty | contradicts)
    )
    is_bare = pl.col("response_id").is_in(
        joined.filter(IS_SILENT & is_repeated)["response_id"].unique().implode()
    )  # may be the same call as another one: see ``collapse``
    return joined.with_columns(
        is_odd=pl.col("is_odd") | is_odd | is_bare, is_exact=(pl.col("capture").is_not_null() & is_exact)
    )


def _told(offset: int) -> tuple[pl.Expr | str, ...]:
    """What is told of a capture, its row ``offset`` later."""
    return (
        "response_id",
        (pl.col("row") + offset).alias("capture"),
        pl.col("policy_version").alias("captured_version"),
        pl.col("prompt_token_ids").alias("prompt_tokens"),
        pl.col("response_token_ids").alias("response_tokens"),
        "logprobs",
        "is_complete",
        pl.col("ingested_at").alias("captured_us"),
        pl.col("sampling").alias("captured_sampling"),
    )


def _joined(calls: pl.DataFrame, only: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """``calls`` with the capture that the gateway made, else with the span's own."""
    place = ["TraceId", "SpanId"]
    if only.is_empty() and not own.is_empty():
        return calls.join(own, on=place, how="left", maintain_order="left")
    joined = calls.join(only, on="response_id", how="left", maintain_order="left")
    if own.is_empty():
        return joined
    both = joined.join(own, on=place, how="left", maintain_order="left", suffix=":own")
    names = [name for name in own.columns if name not in place]
    is_found = pl.col("capture").is_not_null()
    return both.with_columns(
        pl.when(is_found).then(pl.col(name)).otherwise(pl.col(f"{name}:own")).alias(name) for name in names
    ).drop(f"{name}:own" for name in names)


def _has_holes(tokens: pl.DataFrame) -> pl.Series:
    """Whether one of a row's lists has a null in it."""
    nothing = pl.Series(np.zeros(tokens.height, dtype=np.bool_))
    if all(tokens[name].explode(empty_as_null=False).null_count() == 0 for name in tokens.columns):
        return nothing
    holes = [pl.col(name).list.eval(pl.element().is_null()).list.any() for name in tokens.columns]
    return tokens.select(pl.any_horizontal(holes).fill_null(value=False)).to_series()

"""Rows from episodes without captured tokens of the base's tokenizer: a foreign model's spans, rendered as text.

Invariant: each step of a rendered episode is part of exactly one row, trained on or rejected with a reason. What was
not recorded is not rendered: the converter's reasons hold here too. Rendered rows have no log-probabilities, so policy
gradients never take them.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from spanloop.converters.exports.conversation import ChatConversation, Turn, chat_turns, conversations
from spanloop.store import Store

from ...recipes.choices import Tokens
from ...spec.row_source import RowSource
from .rendering import NO_TOKENS, RenderedRow, Renderer, RenderingError

STEPS_QUERY: Final = "training_steps"
_EPISODES_A_QUERY: Final = 256
"""Bounds the messages in memory."""
_NAMES: Final = {RowSource.RENDERED: "text", RowSource.CORRECTED: "correction"}
"""Part of the ids of rows."""
EPISODE_COLUMNS: Final = (
    *("episode_id", "revision", "task_id", "group_id", "started_at", "reward", "outcome", "decided_by", "marks"),
    *("fault_steps", "fault_classes", "fault_owners", "fault_is_recovered"),
)


def with_rendered_rows(
    store: Store, frame: pl.DataFrame, renderer: Renderer, tokens: Tokens, is_usable: pl.Expr
) -> pl.DataFrame:
    """Replace the rows of the episodes that are to be rendered; add the column ``source``.

    Args:
        store: Where the messages are.
        frame: The result of the query ``training_trajectories``.
        renderer: Of the base model.
        tokens: Which episodes are rendered.
        is_usable: Whether a row's captured tokens are of the base's tokenizer.

    Raises:
        StoreError: ClickHouse is unreachable.
        JobError: The base's tokenizer cannot be loaded.
    """
    captured = frame.with_columns(source=pl.lit(RowSource.CAPTURED.value))
    if tokens is Tokens.CAPTURED:
        return captured
    if tokens is Tokens.NONE:
        return captured.clear()
    has_tokens = frame.filter(is_usable).select("episode_id").unique()
    kept = captured.join(has_tokens, on="episode_id", how="semi") if tokens is Tokens.ANY else captured.clear()
    episodes = frame.select(EPISODE_COLUMNS).unique("episode_id", keep="first", maintain_order=True)
    rendered = episodes.join(kept.select("episode_id").unique(), on="episode_id", how="anti", maintain_order="left")
    parts = [kept]
    for part in rendered.iter_slices(_EPISODES_A_QUERY):
        steps = store.query(STEPS_QUERY, episode_ids=part["episode_id"].to_list(), revisions=part["revision"].to_list())
        parts.append(conform(render_episodes(steps, renderer, RowSource.RENDERED), part, captured.schema))
    return pl.concat(parts)


def render_episodes(
    steps: pl.DataFrame, renderer: Renderer, source: RowSource, first_rows: Mapping[str, int] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """Return the rows of episodes; of each step that is rejected, a row of its own with the reason.

    Args:
        steps: The result of the query ``training_steps``.
        renderer: Of the base model.
        source: Of the rows.
        first_rows: Episode → the number of its first row here, where it is not 0.
    """
    rows: list[dict[str, Any]] = []
    for (name,), episode in steps.group_by("episode_id", maintain_order=True):
        rejected: Counter[str] = Counter()
        turns = [turn for _, turn in chat_turns(episode, lambda _: "", rejected, with_reasoning=True)]
        versions = dict(episode.select("step", "policy_version").iter_rows())
        rendered = _episode_rows(turns, versions, renderer, rejected)
        rows += _numbered(str(name), rendered + _refused(rejected), source, first_rows.get(str(name), 0))
    return rows


def conform(rows: list[dict[str, Any]], episodes: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """Return ``rows`` in the columns of ``schema``, with those of their episodes."""
    row_columns = [name for name in schema if name == "episode_id" or name not in EPISODE_COLUMNS]
    frame = pl.DataFrame(rows, schema={name: schema[name] for name in row_columns}, orient="row")
    return frame.join(episodes, on="episode_id", how="left", maintain_order="left").select(schema.names())


def _episode_rows(
    turns: list[Turn], versions: Mapping[int, str], renderer: Renderer, rejected: Counter[str]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for conversation in conversations(turns, with_reasoning=True):
        rendered = _rendered(conversation, renderer, rejected)
        rows += [
            row.columns() | {"policy_versions": sorted({versions[step.step] for step in row.steps})} for row in rendered
        ]
    return rows


def _rendered(conversation: ChatConversation, renderer: Renderer, rejected: Counter[str]) -> list[RenderedRow]:
    """Return the rows of a conversation; a turn that cannot be trained by itself becomes context."""
    turns = [place for place, message in enumerate(conversation.messages) if message["role"] == "assistant"]
    steps = list(conversation.steps)
    while any(step is not None for step in steps):
        try:
            return renderer.rows(conversation.messages, steps, conversation.tools)
        except RenderingError as error:
            if error.position is None:
                rejected[error.reason] += sum(step is not None for step in steps)
                return []
            rejected[error.reason] += 1
            steps[turns.index(error.position)] = None
    return []


def _refused(rejected: Counter[str]) -> list[dict[str, Any]]:
    """Return one row for each rejected step."""
    return [
        NO_TOKENS.columns() | {"policy_versions": [""], "untrainable_reason": reason}
        for reason in sorted(rejected.elements())
    ]


def _numbered(episode: str, rows: list[dict[str, Any]], source: RowSource, first: int) -> list[dict[str, Any]]:
    """Return the rows of an episode with their identities."""
    return [
        {
            "episode_id": episode,
            "trajectory_id": f"{episode}/{_NAMES[source]}/{number}",
            "row_number": number,
            "source": source.value,
            "is_trainable": "untrainable_reason" not in row,
            "untrainable_reason": "",
        }
        | row
        for number, row in enumerate(rows, first)
    ]

"""Tasks taken out of stored episodes: one for each group of episodes that began alike.

Invariant: a group gives one task, whatever the number of its episodes. An answer and reference calls are those of a
successful episode, of the one with the highest reward; without a success there are none.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, cast

from pydantic import field_validator

from spanloop.foundation.errors import ConfigurationError
from spanloop.messages import parse_json_or_none
from spanloop.store.data_sets import find_data_set

from .base import ReadContext, Reader, Record

_PAGE: Final = 200
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StoredTracesReader(Reader):
    """Stored episodes."""

    summary: ClassVar[str] = (
        "Tasks of stored episodes, each once (`stored-traces:`): `prompt`, `messages` and, from a successful episode, "
        "`answer` and `reference_calls`. What follows the colon is the beginning of the task ids."
    )

    service: str = ""
    """Only episodes of this service."""
    mark: str = ""
    """Only episodes with this mark."""
    data_set: str = ""
    """Only episodes of this data set (``name@v2``, or ``name`` for its newest version), at their current revision."""
    since: datetime = _EPOCH
    """Only episodes from this time on (ISO 8601; UTC without a zone)."""

    @field_validator("since")
    @classmethod
    def _in_utc(cls, value: datetime) -> datetime:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def read(self, source: str, context: ReadContext) -> Iterator[Record]:
        """Yield a record for each group."""
        store = context.store
        if store is None:
            raise ConfigurationError("Tasks of stored traces need a store.", next_step="spanloop up")
        data_set = find_data_set(store, self.data_set).reference if self.data_set else ""
        selection = {"task_prefix": source, "service": self.service, "mark": self.mark, "since": self.since}
        selection["data_set"] = data_set
        groups = store.query("tasks_groups", **selection)
        for first in range(0, groups.height, _PAGE):
            page = groups.slice(first, _PAGE)
            pinned = {name: page[name].to_list() for name in ("episode_ids", "revisions")}
            for row in store.query("tasks_episodes", **pinned).to_dicts():
                yield Record(f"episode {row['episode_id']}", _fields(row))


def _fields(row: dict[str, Any]) -> dict[str, object] | str:
    state = _messages(row["state"])
    prompt = next((text for role, text in reversed(state) if role == "user"), "")
    if not prompt:
        return "its first step has no message of a user"
    fields: dict[str, object] = {
        "id": row["task_id"],
        "prompt": prompt,
        "messages": [{"role": role, "content": text} for role, text in state],
    }
    if row["outcome"] == "success":
        answers = _messages(f"[{row['action']}]")
        calls = [parse_json_or_none(call) for call in row["calls"]]
        fields |= {"answer": answers[-1][1]} if answers and answers[-1][1] else {}
        fields |= {"reference_calls": calls} if calls else {}
    return fields


def _messages(text: str) -> list[tuple[str, str]]:
    """Role and text of each message of canonical message JSON."""
    messages = cast("list[dict[str, Any]]", parse_json_or_none(text) or [])
    return [
        (
            str(message.get("role", "")),
            "\n".join(str(part.get("content", "")) for part in message.get("parts", ()) if part.get("type") == "text"),
        )
        for message in messages
    ]

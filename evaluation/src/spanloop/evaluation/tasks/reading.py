"""Read tasks from any source, each record accounted for.

Invariant: accepted + rejected = records. A bad record costs exactly itself: it is reported with its place, and the next
one is read. Of two records with one id, or with equal content, the first is the task.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from spanloop.store import Store

from .readers import find_reader
from .readers.base import ReadContext, Record
from .selection import TaskSelection
from .task import Fields, Task, content_digest, id_of_content, json_value

_SHOWN_NAMES: Final = 12
_ID_CHARACTERS: Final = 200


class RejectedReason(StrEnum):
    """Why a record is no task."""

    BROKEN = "broken"
    """It cannot be read, or it is not an object of named fields."""
    MISSING_FIELD = "missing_field"
    """A field that the agent's command or the grader needs is missing or null."""
    DUPLICATE_ID = "duplicate_id"
    """An earlier record has the same id."""
    DUPLICATE_CONTENT = "duplicate_content"
    """An earlier record has the same content under another id."""
    READER_FAILED = "reader_failed"
    """A reader of one's own raised: the tasks before stay, and the rest of the source is not read."""


class Rejected(NamedTuple):
    """A record that is no task."""

    place: str
    """The file and the line, or the position in the source."""
    reason: RejectedReason
    detail: str

    def __str__(self) -> str:
        return f"{self.place}: {self.detail}"


@dataclass
class TaskReading:
    """An iterable over the tasks of a source; the counts are complete when it is exhausted."""

    source: str
    reader: str = ""
    """Name of the reader; empty chooses by the source."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the reader."""
    id_field: str = "id"
    required: Sequence[str] = ()
    """Fields that each task needs."""
    on_reject: Callable[[Rejected], None] = lambda _: None
    store: Store | None = None
    """For readers that read it."""
    selection: TaskSelection = field(default_factory=TaskSelection)
    """Which of the tasks are taken."""
    accepted: int = 0
    rejected: Counter[RejectedReason] = field(default_factory=Counter[RejectedReason])

    def __iter__(self) -> Iterator[Task]:
        """Read the source once: yield the selected tasks.

        Raises:
            ConfigurationError: The reader, an option or the source cannot be used, or the selection is of a split or
                type that no task has.
        """
        return self.selection.choose(self._tasks())

    def _tasks(self) -> Iterator[Task]:
        read = find_reader(self.source, self.reader, self.options)
        ids: dict[str, _Seen] = {}
        digests: dict[str, _Seen] = {}
        for record in read(ReadContext(self.store)):
            result = self._task(record)
            if isinstance(result, Task):
                result = _duplicate(record.place, result, ids, digests) or result
            if isinstance(result, Task):
                self.accepted += 1
                yield result
            else:
                self.rejected[result.reason] += 1
                self.on_reject(result)

    def _task(self, record: Record) -> Task | Rejected:
        if isinstance(record.fields, str):
            reason = RejectedReason.READER_FAILED if record.ends_source else RejectedReason.BROKEN
            return Rejected(record.place, reason, record.fields)
        try:
            fields = {name: json_value(value) for name, value in record.fields.items()}
            own_id = fields.pop(self.id_field, None)
            digest = content_digest(fields)
        except Exception as error:  # noqa: BLE001 - the border to values of a user's reader: one costs its record
            return Rejected(record.place, RejectedReason.BROKEN, f"the record cannot be read: {error}")
        if isinstance(own_id, bool | float | list | dict):
            detail = f"field {self.id_field!r} is {own_id!r:.60}, expected text or an integer"
            return Rejected(record.place, RejectedReason.BROKEN, detail)
        missing = [name for name in self.required if fields.get(name) is None]
        if missing:
            return Rejected(record.place, RejectedReason.MISSING_FIELD, _missing(missing, fields))
        own_id = str(own_id).strip() if own_id is not None else ""
        if len(own_id) > _ID_CHARACTERS or not own_id.isprintable():
            detail = f"task id {own_id[:_ID_CHARACTERS]!r} is longer than {_ID_CHARACTERS} characters, or not printable"
            return Rejected(record.place, RejectedReason.BROKEN, detail)
        return Task(own_id or id_of_content(digest), fields, digest)


class _Seen(NamedTuple):
    task_id: str
    digest: str
    place: str


def read_tasks(
    source: str,
    *,
    reader: str = "",
    options: Mapping[str, str] | None = None,
    on_reject: Callable[[Rejected], None] = lambda _: None,
) -> list[Task]:
    """Read all tasks of a source into memory; records that are no task are left out, and ``on_reject`` gets them.

    Raises:
        ConfigurationError: The reader, an option or the source cannot be used.
    """
    return list(TaskReading(source, reader=reader, options=options or {}, on_reject=on_reject))


def _duplicate(place: str, task: Task, ids: dict[str, _Seen], digests: dict[str, _Seen]) -> Rejected | None:
    """Return why an earlier task makes this one superfluous; None remembers it."""
    if (same_id := ids.get(task.id)) is not None:
        content = "the same content" if same_id.digest == task.digest else "other content"
        detail = f"task id {task.id!r} is already used at {same_id.place}, with {content}; the first one counts"
        return Rejected(place, RejectedReason.DUPLICATE_ID, detail)
    if (same_content := digests.get(task.digest)) is not None:
        detail = f"task {task.id!r} has the content of task {same_content.task_id!r} at {same_content.place}"
        return Rejected(place, RejectedReason.DUPLICATE_CONTENT, detail)
    ids[task.id] = digests[task.digest] = _Seen(task.id, task.digest, place)
    return None


def _missing(missing: Sequence[str], fields: Fields) -> str:
    present = ", ".join(sorted(fields)[:_SHOWN_NAMES]) or "none"
    return f"field {', '.join(map(repr, missing))} is missing; the record has: {present}"

"""Tasks: what an agent is asked to do, read from files, datasets, generators and stored traces.

A reader yields records with their places; `read_tasks` turns them into tasks. Each reader is a module of ``readers``,
with a line in its registry; a package offers more by entry points of the group ``spanloop.task_readers``.
"""

from .reading import Rejected, RejectedReason, TaskReading, read_tasks
from .selection import LeftOutReason, PassRates, TaskSelection
from .task import Task, content_digest

__all__ = [
    "LeftOutReason",
    "PassRates",
    "Rejected",
    "RejectedReason",
    "Task",
    "TaskReading",
    "TaskSelection",
    "content_digest",
    "read_tasks",
]

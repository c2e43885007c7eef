"""The attempt of a task that the current code belongs to.

Invariant: an attempt comes from OpenTelemetry's context first (``task()``), then from its baggage (a caller that
propagates it), then from the process (``SPANLOOP_TASK_ID``). A context is immutable and follows asyncio
tasks; across threads and pools it follows, unless the user switched that off. An attempt that the task runner assigned
(``SPANLOOP_EPISODE_ID``) stays one attempt: its child processes belong to it, and ``task()`` continues it.
"""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from opentelemetry import baggage
from opentelemetry.context import Context, create_key, get_value, set_value

from spanloop.semconv import attributes as names
from spanloop.semconv.environment import EPISODE_ID_ENV, TASK_ID_ENV

_ATTEMPT_KEY: Final = create_key("spanloop.attempt")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task: an unfinished episode.

    Attributes:
        task_id: The task; its attempts form a group. Empty when unknown.
        episode_id: The id of this attempt. Empty when unknown.
        session_id: The conversation that it belongs to. Empty when there is none.
        agent_name: The agent that attempts it. Empty when it has no name.
        is_assigned: Whether the task runner chose the ids; ``task()`` inside then continues this attempt.
    """

    task_id: str
    episode_id: str
    session_id: str = ""
    agent_name: str = ""
    is_assigned: bool = False

    def attributes(self) -> Mapping[str, str]:
        """Return the attributes of spans and log events inside the attempt."""
        candidates = {
            names.SPANLOOP_TASK_ID: self.task_id,
            names.SPANLOOP_EPISODE_ID: self.episode_id,
            names.SESSION_ID: self.session_id,
            names.GEN_AI_AGENT_NAME: self.agent_name,
        }
        return {name: value for name, value in candidates.items() if value}


def new_episode_id() -> str:
    """Return a new episode id: 32 hex digits."""
    return uuid.uuid4().hex


def with_attempt(attempt: Attempt, context: Context | None = None) -> Context:
    """Return ``context`` (default: the current one) with ``attempt`` in it."""
    return set_value(_ATTEMPT_KEY, attempt, context)


def attempt_in(context: Context | None = None) -> Attempt | None:
    """Return the attempt that ``context`` (default: the current one) belongs to, or None."""
    attempt = get_value(_ATTEMPT_KEY, context)
    if isinstance(attempt, Attempt):
        return attempt
    return _from_baggage(context) or _of_this_process()


def _from_baggage(context: Context | None) -> Attempt | None:
    entries = baggage.get_all(context)
    if not entries:
        return None
    attempt = Attempt(
        task_id=str(entries.get(names.SPANLOOP_TASK_ID, "")),
        episode_id=str(entries.get(names.SPANLOOP_EPISODE_ID, "")),
        session_id=str(entries.get(names.SESSION_ID, "")),
    )
    if not attempt.attributes():
        return None
    if attempt.task_id or attempt.episode_id:
        return attempt
    process = _of_this_process()
    return replace(process, session_id=attempt.session_id) if process else attempt


def _of_this_process() -> Attempt | None:
    """Return the attempt that the environment declares for the process.

    With an episode id, child processes belong to the same attempt. Without one, a forked child has another.
    """
    task_id = os.environ.get(TASK_ID_ENV, "").strip()
    episode_id = os.environ.get(EPISODE_ID_ENV, "").strip()
    if episode_id:
        return Attempt(task_id, episode_id, is_assigned=True)
    return _of_process(task_id, os.getpid()) if task_id else None


@cache
def _of_process(task_id: str, pid: int) -> Attempt:
    del pid
    return Attempt(task_id, new_episode_id())

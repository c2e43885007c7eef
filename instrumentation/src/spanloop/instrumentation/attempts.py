"""Which attempt of which task the current code belongs to.

Invariant: the answer comes from OpenTelemetry's context first (``task()``), then from its baggage (a caller that
propagates it), then from the process (``SPANLOOP_TASK_ID``). A context is immutable and follows asyncio tasks by
itself; across threads it follows where the threading instrumentation is loaded.
"""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from opentelemetry import baggage
from opentelemetry.context import Context, create_key, get_value, set_value

from spanloop.semconv import attributes as names
from spanloop.semconv.environment import TASK_ID_ENV

_ATTEMPT_KEY: Final = create_key("spanloop.attempt")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of one task: an episode in the making.

    Attributes:
        task_id: What is attempted; attempts of one task form a group. Empty when unknown.
        episode_id: This attempt. Empty when unknown.
        session_id: The conversation that it belongs to. Empty when there is none.
        agent_name: The agent that attempts it. Empty when it has no name.
    """

    task_id: str
    episode_id: str
    session_id: str = ""
    agent_name: str = ""

    def attributes(self) -> Mapping[str, str]:
        """The attributes that spans and log events inside the attempt carry."""
        candidates = {
            names.SPANLOOP_TASK_ID: self.task_id,
            names.SPANLOOP_EPISODE_ID: self.episode_id,
            names.SESSION_ID: self.session_id,
            names.GEN_AI_AGENT_NAME: self.agent_name,
        }
        return {name: value for name, value in candidates.items() if value}


def new_episode_id() -> str:
    """A fresh episode id: 32 hex digits."""
    return uuid.uuid4().hex


def with_attempt(attempt: Attempt, context: Context | None = None) -> Context:
    """``context`` (the current one by default) with ``attempt`` in it."""
    return set_value(_ATTEMPT_KEY, attempt, context)


def attempt_in(context: Context | None = None) -> Attempt | None:
    """The attempt that ``context`` (the current one by default) belongs to, or None."""
    found = get_value(_ATTEMPT_KEY, context)
    if isinstance(found, Attempt):
        return found
    return _from_baggage(context) or _of_this_process()


def _from_baggage(context: Context | None) -> Attempt | None:
    carried = baggage.get_all(context)
    if not carried:
        return None
    found = Attempt(
        task_id=str(carried.get(names.SPANLOOP_TASK_ID, "")),
        episode_id=str(carried.get(names.SPANLOOP_EPISODE_ID, "")),
        session_id=str(carried.get(names.SESSION_ID, "")),
    )
    if not found.attributes():
        return None
    if found.task_id or found.episode_id:
        return found
    process = _of_this_process()
    return Attempt(process.task_id, process.episode_id, found.session_id) if process else found


def _of_this_process() -> Attempt | None:
    """The attempt that ``SPANLOOP_TASK_ID`` declares the whole process to be; a forked child is one of its own."""
    task_id = os.environ.get(TASK_ID_ENV, "").strip()
    return _of_process(task_id, os.getpid()) if task_id else None


@cache
def _of_process(task_id: str, pid: int) -> Attempt:
    del pid
    return Attempt(task_id, new_episode_id())

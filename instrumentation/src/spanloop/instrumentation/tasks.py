"""``task()``: mark a block or function as one attempt of one task.

Invariant: the user's code runs even if this module fails, its exceptions pass unchanged, and each entry is a new
episode, also when one ``task()`` object decorates a function that is called many times. Under the task runner, which
chose the ids of the attempt, each entry is a part of that attempt instead.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from spanloop.instrumentation.attempts import Attempt, attempt_in, new_episode_id, with_attempt
from spanloop.instrumentation.exception_guard import guarded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextvars import Token
    from types import TracebackType

    from opentelemetry.context import Context

P = ParamSpec("P")
R = TypeVar("R")

SCOPE_NAME = "spanloop.instrumentation"


class _Entered(NamedTuple):
    span: Span
    token: Token[Context]


class TaskContext:
    """The result of ``task()``: a context manager (``with`` and ``async with``) and a decorator."""

    def __init__(self, task_id: str, session_id: str | None, agent_name: str | None) -> None:
        self._task_id = str(task_id)
        self._session_id = "" if session_id is None else str(session_id)
        self._agent_name = "" if agent_name is None else str(agent_name)
        self._entered: list[_Entered] = []

    def __enter__(self) -> Attempt:
        attempt = self._attempt()
        with guarded("cannot open the task's span"):
            tracer = trace.get_tracer(SCOPE_NAME)
            span = tracer.start_span(f"task {attempt.task_id}", attributes=dict(attempt.attributes()))
            token = otel_context.attach(trace.set_span_in_context(span, with_attempt(attempt)))
            self._entered.append(_Entered(span, token))
        return attempt

    def _attempt(self) -> Attempt:
        current = attempt_in()
        if current is None or not current.is_assigned:
            return Attempt(self._task_id, new_episode_id(), self._session_id, self._agent_name)
        session_id = self._session_id or current.session_id
        return replace(current, session_id=session_id, agent_name=self._agent_name or current.agent_name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with guarded("cannot close the task's span"):
            if not self._entered:
                return
            entered = self._entered.pop()
            if isinstance(error, Exception):
                entered.span.record_exception(error)
                entered.span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
            entered.span.end()
            otel_context.detach(entered.token)

    async def __aenter__(self) -> Attempt:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Make each call of ``function`` (plain or ``async``) a separate attempt."""
        if inspect.iscoroutinefunction(function):
            return cast("Callable[P, R]", self._wrap_coroutine(function))

        @wraps(function)
        def attempt(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._new_context():
                return function(*args, **kwargs)

        return attempt

    def _wrap_coroutine(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(function)
        async def attempt(*args: Any, **kwargs: Any) -> Any:
            with self._new_context():
                return await function(*args, **kwargs)

        return attempt

    def _new_context(self) -> TaskContext:
        return TaskContext(self._task_id, self._session_id, self._agent_name)


def task(task_id: str, *, session_id: str | None = None, agent_name: str | None = None) -> TaskContext:
    """Declare that the code inside attempts ``task_id``.

    Opens the span ``task <task_id>`` with a new ``spanloop.episode.id``; every span and log event inside carries the
    ids, also in other asyncio tasks and (under ``opentelemetry-instrument``) in the threads that it starts. Under
    ``spanloop run`` the ids are those of the runner's attempt.

    Args:
        task_id: The task's name. Group-relative training compares the attempts of one task.
        session_id: The conversation that the attempt belongs to (``session.id``).
        agent_name: The agent that attempts it (``gen_ai.agent.name``).

    Returns:
        A context manager, plain or ``async``, whose value is the ``Attempt``; also usable as a decorator.
    """
    return TaskContext(task_id, session_id, agent_name)

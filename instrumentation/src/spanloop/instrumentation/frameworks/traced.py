"""Wrappers of a framework's functions: each agent run and each tool call becomes one span.

A framework's module declares what a function does (an `AgentRun` or a `ToolCall`: how to name the span, which arguments
and results to read), and in which form it does it: it returns the result, is a coroutine function, or returns a
generator.

Invariant: an exception of the app passes unchanged. An exception of a declaration's reader costs only the values that
it reads, and is reported.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from types import ModuleType
from typing import Any, NamedTuple, cast

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.exception_guard import guard, guarded

from .spans import (
    RunSpan,
    end_on_error,
    iterate_in_span,
    record_tool_error,
    start_agent_span,
    start_tool_span,
    stream_in_span,
)

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""wrapt's form: the wrapped function, its instance, and the arguments of the call."""


class Call(NamedTuple):
    """One call of a wrapped function."""

    instance: Any
    args: tuple[Any, ...]
    named: Mapping[str, Any]

    def argument(self, name: str, position: int | None = None) -> Any:
        """Return the argument ``name``, which may also be passed at ``position``; None where the call has neither."""
        is_positional = position is not None and -len(self.args) <= position < len(self.args)
        return self.named.get(name, self.args[cast("int", position)] if is_positional else None)


class ToolRequest(NamedTuple):
    """What a framework knows about a tool call before it is made; see `start_tool_span`."""

    name: object = ""
    call_id: object = ""
    arguments: object = None


def wrap_functions(module: ModuleType, wrappers: Mapping[str, Wrapper]) -> None:
    """Wrap functions of a framework's module.

    Args:
        module: The framework's module.
        wrappers: Path of a function in the module, such as ``Agent.run`` → its wrapper.

    Raises:
        AttributeError: The module has no such function.
    """
    for path, wrapper in wrappers.items():
        wrap_function_wrapper(module, path, wrapper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(ABC):
    """What a function does. The methods that are public are wrappers, one for each form of a function."""

    is_traced: Callable[[Call], bool] = lambda _: True
    control_flow: str = ""
    """Name of an exception (or of a base of it) that ends the call without being an error."""
    fails_by_cause: bool = False
    """Whether the framework raises its exception from the tool's."""
    is_inside: ContextVar[bool] | None = None
    """Where given, only the outermost of nested calls is traced: whether one runs in this context."""
    follows_generators: bool = False
    """Whether a generator that a call returns is a part of the operation."""
    tasks: tuple[str, ...] = ()
    """Attributes of the result that may hold the task in which the operation goes on."""

    @abstractmethod
    def _start(self, call: Call) -> RunSpan:
        """Start the span of a call."""

    @abstractmethod
    def _record(self, span: RunSpan, outcome: Any) -> None:
        """Record the result, or the last item of a generator."""

    def call(self, function: Callable[..., Any], instance: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Wrap a plain function."""
        call = Call(instance, args, named)
        if not self._traces(call):
            return function(*args, **named)
        with self._run(call) as span:
            outcome = function(*args, **named)
            if not self._goes_on(outcome):
                self._record(span, outcome)
        return self._finish(span, outcome)

    async def coroutine(
        self, function: Callable[..., Awaitable[Any]], instance: Any, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        """Wrap a coroutine function."""
        call = Call(instance, args, named)
        if not self._traces(call):
            return await function(*args, **named)
        with self._run(call) as span:
            outcome = await function(*args, **named)
            if not self._goes_on(outcome):
                self._record(span, outcome)
        return self._finish(span, outcome)

    def stream(
        self, function: Callable[..., Any], instance: Any, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> Any:
        """Wrap a function that returns a generator, or an awaitable where the app asks for no stream."""
        call = Call(instance, args, named)
        outcome = function(*args, **named)
        if not self._traces(call):
            return outcome
        if isgenerator(outcome) or isasyncgen(outcome):
            return self._follow(self._start(call), outcome)
        return self._await_in_span(call, outcome) if isawaitable(outcome) else outcome

    async def _await_in_span(self, call: Call, outcome: Awaitable[Any]) -> Any:
        with self._run(call) as span:
            result = await outcome
            self._record(span, result)
        span.end()
        return result

    def _traces(self, call: Call) -> bool:
        return not (self.is_inside is not None and self.is_inside.get()) and self.is_traced(call)

    @contextmanager
    def _run(self, call: Call) -> Generator[RunSpan]:
        """Run a block in the operation's span, which ends here only on an exception."""
        token = None if self.is_inside is None else self.is_inside.set(True)
        try:
            span = self._start(call)
            with end_on_error(span, control_flow=self.control_flow, fails_by_cause=self.fails_by_cause):
                yield span
        finally:
            if self.is_inside is not None and token is not None:
                self.is_inside.reset(token)

    def _goes_on(self, outcome: Any) -> bool:
        return self.follows_generators and (isgenerator(outcome) or isasyncgen(outcome))

    def _finish(self, span: RunSpan, outcome: Any) -> Any:
        if self._goes_on(outcome):
            return self._follow(span, outcome)
        task = next(filter(None, (getattr(outcome, name, None) for name in self.tasks)), None)
        if task is None:
            span.end()
        else:
            with guarded("a run's end is not recorded"):
                task.add_done_callback(partial(_end, span))
        return outcome

    def _follow(self, span: RunSpan, items: Any) -> Any:
        if isgenerator(items):
            return iterate_in_span(span, cast("Generator[Any]", items))
        return stream_in_span(span, items, partial(self._record, span))


def _end(span: RunSpan, task: object) -> None:
    del task
    span.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun(Operation):
    """An agent's run."""

    name: Callable[[Call], str] = lambda call: getattr(call.instance, "name", "")
    follows_generators: bool = True

    def _start(self, call: Call) -> RunSpan:
        name = ""
        with guarded("an agent's name was not recorded"):
            name = self.name(call)
        return start_agent_span(name)

    def _record(self, span: RunSpan, outcome: Any) -> None:
        """Record nothing: what a run returns is in the spans of its model calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(Operation):
    """A tool call."""

    read: Callable[[Call], ToolRequest]
    record: Callable[[RunSpan, Any], None] = RunSpan.set_result
    """Records the result, or the error where the framework returns it; by default the whole outcome."""

    def _start(self, call: Call) -> RunSpan:
        request = ToolRequest()
        with guarded("a tool call was not read"):
            request = self.read(call)
        return start_tool_span(request.name, call_id=request.call_id, arguments=request.arguments)

    def _record(self, span: RunSpan, outcome: Any) -> None:
        with guarded("a tool's result was not recorded"):
            self.record(span, outcome)


def before(note: Callable[[Call], None]) -> Wrapper:
    """Return a wrapper that calls ``note`` before the function, such as to remember a call's id."""
    guarded_note = guard("a call was not read", None)(note)

    def wrapper(function: Callable[..., Any], instance: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        guarded_note(Call(instance, args, named))
        return function(*args, **named)

    return wrapper


def record_error_argument(name: str, position: int | None = None) -> Wrapper:
    """Return a wrapper of a function that a tool's exception is passed to: it is recorded on the current tool span."""

    def note(call: Call) -> None:
        if isinstance(error := call.argument(name, position), Exception):
            record_tool_error(error)

    return before(note)


def record_raised(function: Callable[..., Any], _: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Wrap a plain or a coroutine function: its exception is recorded on the current tool span."""
    try:
        result = function(*args, **named)
    except Exception as error:
        record_tool_error(error)
        raise
    return _record_raised_later(result) if iscoroutine(result) else result


async def _record_raised_later(result: Awaitable[Any]) -> Any:
    try:
        return await result
    except Exception as error:
        record_tool_error(error)
        raise

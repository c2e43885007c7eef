"""The matrix's assertions: each returns what is wrong with one task, or nothing."""

from collections.abc import Callable
from typing import Any, Final

from .facts import Result, Step, Tasks
from .rows import Row
from .scripted_model.script import POPULATION, REPORT, SHORT, WEATHER

Check = Callable[[Row, str, Tasks], str]

CRASH_STEPS: Final = 2
_EXPECTED_PROBLEMS: Final = {"", "request_failed", "environment_fault", "unattributed_failure", "missing_logprobs"}
"""Reasons that say nothing about what was recorded."""


def script_of(ticket: str) -> str:
    """`report`, `stream`, `async`, `threads`, `delegate` or `crash`."""
    return ticket.split("-")[1]


def expected_steps(row: Row, ticket: str) -> int:
    """Model calls that the app makes for a ticket."""
    script = script_of(ticket)
    return CRASH_STEPS if script == "crash" else row.delegated_steps if script == "delegate" else row.steps


def _steps(ticket: str, tasks: Tasks) -> list[Step]:
    return tasks.get(ticket, [])


def _results(ticket: str, tasks: Tasks) -> list[Result]:
    """Results of the app's tools."""
    results = (result for step in _steps(ticket, tasks) for result in step.results)
    return [result for result in results if _plain(result.name) in {WEATHER, POPULATION}]


def _plain(name: str) -> str:
    """A tool's name without the plugin's before it."""
    return next((tool for tool in (WEATHER, POPULATION) if name.endswith(tool)), name)


def _expected_tools(ticket: str) -> int:
    return len(SHORT if script_of(ticket) in {"delegate", "crash"} else REPORT)


def model_calls(row: Row, ticket: str, tasks: Tasks) -> str:
    """Every model call is there, with its messages."""
    steps = _steps(ticket, tasks)
    if len(steps) < expected_steps(row, ticket):
        return f"{len(steps)} of {expected_steps(row, ticket)} model calls"
    return next((step.problem for step in steps if step.problem not in _EXPECTED_PROBLEMS), "")


def no_step_twice(row: Row, ticket: str, tasks: Tasks) -> str:
    """No model call is there twice."""
    steps = _steps(ticket, tasks)
    expected = expected_steps(row, ticket)
    return f"{len(steps)} steps of {expected} model calls" if len(steps) > expected else ""


def tool_calls(row: Row, ticket: str, tasks: Tasks) -> str:
    """The actions hold the model's tool calls with their arguments, in order."""
    expected = SHORT if script_of(ticket) in {"delegate", "crash"} else REPORT
    steps = _steps(ticket, tasks)
    if row.writes_calls:
        calls = [call for step in steps if (call := _written(step, expected))]
    else:
        calls = [(_plain(call["name"]), _city(call)) for step in steps for call in step.calls]
    wanted = [call for call in calls if call[0] in {WEATHER, POPULATION}]
    if len(wanted) == len(expected) and tuple(wanted) != expected:
        return "tool calls in another order or with other arguments"
    return "" if tuple(wanted) == expected else f"{len(wanted)} of {len(expected)} tool calls in the actions"


def _written(step: Step, expected: tuple[tuple[str, str], ...]) -> tuple[str, object] | None:
    """The expected call whose name and arguments are in the step's text."""
    return next((call for call in expected if call[0] in step.text and f'{{"city": "{call[1]}"}}' in step.text), None)


def _city(call: dict[str, Any]) -> object:
    arguments: Any = call.get("arguments")
    return arguments.get("city") if isinstance(arguments, dict) else arguments  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def tool_spans(row: Row, ticket: str, tasks: Tasks) -> str:
    """Every tool call has a result, and in a framework a span."""
    results, expected = _results(ticket, tasks), _expected_tools(ticket)
    if len(results) != expected:
        return f"{len(results)} of {expected} tool results"
    spans = {result.span_id for result in results if result.span_id}
    return "" if row.is_sdk or len(spans) == expected else f"{len(spans)} of {expected} tool spans"


def call_ids(row: Row, ticket: str, tasks: Tasks) -> str:
    """Every result has the id of the model's tool call, where the model gives one."""
    if row.writes_calls:
        return ""
    results = _results(ticket, tasks)
    ids = [call.get("id") for step in _steps(ticket, tasks) for call in step.calls]
    known = [result for result in results if result.call_id and result.call_id in ids]
    expected = _expected_tools(ticket)
    distinct = len({result.call_id for result in known})
    return "" if distinct == expected else f"{distinct} of {expected} call ids"


def tool_errors(row: Row, ticket: str, tasks: Tasks) -> str:
    """The tool call that failed has an error with its type, from the tool's span; no other call has one."""
    errors = [result.is_error for result in _results(ticket, tasks)]
    if script_of(ticket) in {"delegate", "crash"}:
        return "a tool that worked has an error" if any(errors) else ""
    if not errors or not errors[0]:
        return "the tool's error is missing"
    if any(errors[1:]):
        return "a tool that worked has an error"
    failed = _results(ticket, tasks)[0]
    if not failed.error_type:
        return "the error has no type"
    return "" if row.is_sdk or failed.span_failed else "the error is known from its text only"


def one_episode(row: Row, ticket: str, tasks: Tasks) -> str:
    """A task is one episode, and the episode holds no other task."""
    del row
    episodes = {step.episode for step in _steps(ticket, tasks)}
    if len(episodes) != 1:
        return f"{len(episodes)} episodes"
    others = {step.ticket for steps in tasks.values() for step in steps if step.episode in episodes} - {ticket}
    return f"one episode with {min(others) or 'calls of no task'}" if others else ""


def links(row: Row, ticket: str, tasks: Tasks) -> str:
    """Each step's next state is the state of the step that follows it; the last one of each conversation has none."""
    steps = _steps(ticket, tasks)
    conversations = {"delegate": row.delegated_conversations, "crash": 1}
    expected_ends = conversations.get(script_of(ticket), row.conversations)
    states = {step.state for step in steps}
    if any(step.next_state and step.next_state not in states for step in steps):
        return "a next state that is no step's state"
    ends = sum(not step.next_state for step in steps)
    if not steps:
        return "no steps"
    return "" if ends == expected_ends else f"{ends} ends of {expected_ends} conversations"


def rewards(row: Row, ticket: str, tasks: Tasks) -> str:
    """With `task()` and `reward()`, every step has the task's id and reward."""
    del row
    steps = _steps(ticket, tasks)
    expected = 1.0 if ticket.endswith("1") else 0.25
    if not steps or any(step.task_id != ticket for step in steps):
        return "task id missing"
    if any(step.reward != expected for step in steps):
        return "reward missing"
    episodes = len({step.episode for step in steps})
    return "" if episodes == 1 else f"{episodes} episodes"


CHECKS: Final[dict[str, Check]] = {
    "model calls": model_calls,
    "no step twice": no_step_twice,
    "tool calls": tool_calls,
    "tool spans": tool_spans,
    "call ids": call_ids,
    "tool errors": tool_errors,
    "one episode": one_episode,
    "links": links,
}
"""Column → its check, over all tasks of an unchanged app."""

"""The matrix's assertions on recorded tasks: each one finds what it is there for."""

from typing import Any

import pytest
from framework_matrix.checks import CHECKS, rewards
from framework_matrix.facts import Result, Step, Tasks
from framework_matrix.rows import ROWS, Row

TICKET = "ticket-report-2"
ROW = Row("app", "App", ("app",))
CALLS = [
    [("get_weather", "Atlantis")],
    [("get_weather", "Oslo")],
    [("get_weather", "Paris"), ("get_population", "Paris")],
    [],
]


def recorded(**changes: Any) -> Tasks:
    """A task that is recorded completely; ``changes`` are made to its first step."""
    steps: list[Step] = []
    for number, calls in enumerate(CALLS):
        ids = [f"call_{number}_{place}" for place in range(len(calls))]
        results = tuple(
            Result(call_id, name, city == "Atlantis", "ValueError" * (city == "Atlantis"), f"span-{call_id}", True)
            for call_id, (name, city) in zip(ids, calls, strict=True)
        )
        steps.append(
            Step(
                ticket=TICKET,
                episode="e1",
                number=number,
                span_id=f"model-{number}",
                agent="",
                state=f"state {number}",
                next_state=f"state {number + 1}" if calls else "",
                calls=tuple(
                    {"id": call_id, "name": name, "arguments": {"city": city}}
                    for call_id, (name, city) in zip(ids, calls, strict=True)
                ),
                results=results,
                text="",
                problem="",
                task_id=TICKET,
                reward=0.25,
            )
        )
    steps[0] = steps[0]._replace(**changes)
    return {TICKET: steps}


def problems(tasks: Tasks) -> set[str]:
    return {column for column, check in (CHECKS | {"rewards": rewards}).items() if check(ROW, TICKET, tasks)}


def changed_result(**changes: Any) -> Tasks:
    return recorded(results=(recorded()[TICKET][0].results[0]._replace(**changes),))


def test_a_complete_recording_has_no_problem() -> None:
    assert problems(recorded()) == set()


@pytest.mark.parametrize(
    ("tasks", "column"),
    [
        (recorded(problem="missing_content"), "model calls"),
        (recorded(calls=()), "tool calls"),
        (recorded(results=()), "tool spans"),
        (changed_result(span_id=""), "tool spans"),
        (changed_result(call_id=""), "call ids"),
        (changed_result(is_error=False), "tool errors"),
        (changed_result(span_failed=False), "tool errors"),
        (recorded(episode="e2"), "one episode"),
        (recorded(next_state=""), "links"),
        (recorded(next_state="of no step"), "links"),
        (recorded(reward=None), "rewards"),
        (recorded(task_id=""), "rewards"),
        ({TICKET: [*recorded()[TICKET], recorded()[TICKET][0]]}, "no step twice"),
        ({TICKET: recorded()[TICKET][1:]}, "model calls"),
    ],
)
def test_each_check_finds_what_is_missing(tasks: Tasks, column: str) -> None:
    assert column in problems(tasks)


def test_an_episode_with_two_tasks_is_found() -> None:
    tasks = recorded()
    tasks["ticket-report-1"] = [step._replace(ticket="ticket-report-1") for step in tasks[TICKET]]
    assert "one episode" in problems(tasks)


def test_rows_have_names_of_their_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_calls_that_the_model_writes_are_read_in_its_text() -> None:
    row = ROW._replace(writes_calls=True)
    tasks = recorded()
    tasks[TICKET] = [
        step._replace(calls=(), text="".join(f'{name} {{"city": "{city}"}}' for name, city in calls))
        for step, calls in zip(tasks[TICKET], [*CALLS[:2], CALLS[2][:1], CALLS[2][1:]], strict=True)
    ]
    assert CHECKS["tool calls"](row, TICKET, tasks) == ""
    tasks[TICKET][0] = tasks[TICKET][0]._replace(text="get_weather")
    assert CHECKS["tool calls"](row, TICKET, tasks) == "3 of 4 tool calls in the actions"

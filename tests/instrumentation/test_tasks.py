"""``task()`` and ``reward()`` inside one process, against the SDK's own in-memory exporters."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
from opentelemetry import _logs, baggage, context, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import spanloop.instrumentation
from spanloop.instrumentation import Attempt, mark, reward, task
from spanloop.instrumentation.stamping import AttemptLogProcessor, AttemptSpanProcessor

EPISODE = "spanloop.episode.id"


class Recorded:
    """What reached the exporters of this process."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self._logs = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
        self.tracing = TracerProvider(shutdown_on_exit=False)
        self.tracing.add_span_processor(AttemptSpanProcessor())
        self.tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        self.logging = LoggerProvider(shutdown_on_exit=False)
        self.logging.add_log_record_processor(AttemptLogProcessor())
        self.logging.add_log_record_processor(SimpleLogRecordProcessor(self._logs))

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._spans.get_finished_spans()}

    def attributes(self, name: str) -> dict[str, object]:
        return dict(self.spans[name].attributes or {})

    @property
    def rewards(self) -> list[dict[str, object]]:
        return [dict(log.log_record.attributes or {}) for log in self._logs.get_finished_logs()]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    here = Recorded()
    monkeypatch.setattr(trace, "get_tracer", here.tracing.get_tracer)
    monkeypatch.setattr("spanloop.instrumentation.evaluation_events.get_logger", here.logging.get_logger)
    monkeypatch.setattr(_logs, "get_logger", here.logging.get_logger)
    yield here
    here.tracing.shutdown()
    here.logging.shutdown()


def _span(name: str) -> None:
    trace.get_tracer("app").start_span(name).end()


def test_the_public_names_are_these() -> None:
    assert sorted(spanloop.instrumentation.__all__) == [
        "Attempt",
        "EnvironmentSession",
        "EnvironmentUnavailableError",
        "TaskContext",
        "environment",
        "mark",
        "reward",
        "task",
        "tool",
    ]


def test_every_entry_is_an_episode_of_its_own(recorded: Recorded) -> None:
    with task("a") as first:
        _span("one")
    with task("a") as second:
        _span("two")
    assert (first.task_id, second.task_id) == ("a", "a")
    assert first.episode_id != second.episode_id
    assert recorded.attributes("one") == {"spanloop.task.id": "a", EPISODE: first.episode_id}
    assert recorded.attributes("two") == {"spanloop.task.id": "a", EPISODE: second.episode_id}


def test_an_inner_task_is_its_own_and_the_outer_returns(recorded: Recorded) -> None:
    with task("outer", session_id="s") as outer:
        with task("inner") as inner:
            _span("in")
        _span("out")
    assert recorded.attributes("in")[EPISODE] == inner.episode_id
    assert "session.id" not in recorded.attributes("in")
    assert recorded.attributes("out")[EPISODE] == outer.episode_id
    parent = recorded.spans["task inner"].parent
    assert parent is not None
    assert parent.span_id == (recorded.spans["task outer"].context or parent).span_id


async def test_concurrent_asyncio_tasks_do_not_mix(recorded: Recorded) -> None:
    async def attempt(name: str) -> Attempt:
        async with task(name) as mine:
            for step in range(5):
                await asyncio.sleep(0)
                _span(f"{name} {step}")
        return mine

    attempts = await asyncio.gather(*(attempt(f"t{number}") for number in range(8)))
    for mine in attempts:
        for step in range(5):
            assert recorded.attributes(f"{mine.task_id} {step}")[EPISODE] == mine.episode_id


async def test_the_decorator_makes_each_call_an_attempt(recorded: Recorded) -> None:
    @task("plain", session_id="s")
    def plain(number: int) -> int:
        _span(f"plain {number}")
        return number + 1

    @task("async")
    async def coroutine(number: int) -> int:
        await asyncio.sleep(0)
        _span(f"async {number}")
        return number + 1

    assert [plain(0), plain(1)] == [1, 2]
    assert list(await asyncio.gather(coroutine(0), coroutine(1))) == [1, 2]
    episodes = {recorded.attributes(f"{kind} {number}")[EPISODE] for kind in ("plain", "async") for number in (0, 1)}
    assert len(episodes) == 4
    assert plain.__name__ == "plain"


def test_a_copied_context_carries_the_attempt_into_a_thread(recorded: Recorded) -> None:
    with task("t") as attempt, ThreadPoolExecutor(1) as pool:
        pool.submit(copy_context().run, _span, "thread").result()
    assert recorded.attributes("thread")[EPISODE] == attempt.episode_id


def test_an_exception_passes_and_marks_the_span(recorded: Recorded) -> None:
    error = ValueError("the user's own")
    with pytest.raises(ValueError, match="the user's own") as raised, task("t"):
        raise error
    assert raised.value is error
    span = recorded.spans["task t"]
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, "ValueError: the user's own")


def test_baggage_of_a_caller_is_an_attempt_too(recorded: Recorded) -> None:
    carried = baggage.set_baggage("spanloop.task.id", "b", baggage.set_baggage("session.id", "s"))
    token = context.attach(carried)
    _span("carried")
    context.detach(token)
    assert recorded.attributes("carried") == {"spanloop.task.id": "b", "session.id": "s"}


def test_an_attempt_that_the_runner_assigned_is_one_whatever_the_app_declares(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_TASK_ID", "the runner's")
    monkeypatch.setenv("SPANLOOP_EPISODE_ID", "e1")
    _span("before")
    with task("the app's", session_id="s") as first, task("inner"):
        _span("inside")
        reward(1.0)
    assert (first.task_id, first.episode_id, first.session_id) == ("the runner's", "e1", "s")
    ids = {"spanloop.task.id": "the runner's", EPISODE: "e1"}
    assert recorded.attributes("before") == ids
    assert recorded.attributes("inside") == ids | {"session.id": "s"}
    assert set(recorded.spans) == {"before", "inside", "task the runner's"}
    assert recorded.rewards[0][EPISODE] == "e1"


def test_a_stamp_never_overwrites(recorded: Recorded) -> None:
    with task("t", session_id="ours"):
        trace.get_tracer("app").start_span("mine", attributes={"session.id": "theirs"}).end()
    assert recorded.attributes("mine")["session.id"] == "theirs"


def test_a_reward_joins_its_attempt(recorded: Recorded) -> None:
    with task("t") as attempt:
        reward(True, label="pass")
    assert recorded.rewards == [
        {
            "gen_ai.evaluation.name": "reward",
            "gen_ai.evaluation.score.value": 1.0,
            "gen_ai.evaluation.score.label": "pass",
            "spanloop.task.id": "t",
            EPISODE: attempt.episode_id,
        }
    ]


def test_a_reward_outside_a_task_joins_by_response_or_span(recorded: Recorded, told: list[str]) -> None:
    reward(0.25, response_id="chatcmpl-1")
    with trace.get_tracer("app").start_as_current_span("span"):
        reward(0.5)
    assert [(seen["gen_ai.evaluation.score.value"], seen.get("gen_ai.response.id")) for seen in recorded.rewards] == [
        (0.25, "chatcmpl-1"),
        (0.5, None),
    ]
    assert told == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -3e38, 1.001e12, 10**400, "much", None])
def test_a_reward_that_is_no_number_is_told_and_not_sent(recorded: Recorded, told: list[str], value: float) -> None:
    with task("t"):
        reward(value)
    assert recorded.rewards == []
    (line,) = told
    assert "reward" in line


def test_a_reward_that_belongs_to_nothing_is_told(recorded: Recorded, told: list[str]) -> None:
    reward(1.0)
    assert recorded.rewards == []
    assert told == [
        "spanloop: reward(1.0, name='reward') belongs to nothing: call it inside task(), or give response_id\n"
    ]


def test_a_mark_joins_its_attempt_and_has_a_key_of_its_own(recorded: Recorded, told: list[str]) -> None:
    with task("t") as attempt:
        mark("good")
        mark(" good ", remove=True)
    sent = recorded.rewards
    keys = [str(event.pop("spanloop.score.id")) for event in sent]
    assert len(set(keys)) == 2
    common = {"gen_ai.evaluation.name": "spanloop.mark", "gen_ai.evaluation.score.label": "good"}
    of_attempt = {"spanloop.task.id": "t", EPISODE: attempt.episode_id}
    assert sent == [{**common, "gen_ai.evaluation.score.value": value, **of_attempt} for value in (1.0, 0.0)]
    assert told == []


@pytest.mark.parametrize("label", ["", "  ", None, 3])
def test_a_mark_without_a_label_is_told_and_not_sent(recorded: Recorded, told: list[str], label: str) -> None:
    with task("t"):
        mark(label)
    assert recorded.rewards == []
    (line,) = told
    assert "mark" in line


def test_our_own_failure_is_told_and_the_users_code_runs(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("our bug")

    monkeypatch.setattr(trace, "get_tracer", broken)
    with task("t") as attempt:
        ran = attempt.task_id
    assert ran == "t"
    (line,) = told
    assert "our bug" in line


def test_without_the_distro_nothing_happens(told: list[str]) -> None:
    with task("t"):
        _span("lost")
        reward(1.0)
    assert told == []

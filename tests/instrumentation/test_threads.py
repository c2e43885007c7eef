"""Context across threads: what is started within a span belongs to it, and nothing outlives it."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.context import attach, detach, get_value, set_value

from spanloop.instrumentation.calls.threads import carry_context_into_threads

KEY = "of the span"


@pytest.fixture(autouse=True)
def carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", ThreadPoolExecutor.submit)
    carry_context_into_threads()


@pytest.fixture
def within() -> Generator[None]:
    token = attach(set_value(KEY, "here"))
    yield
    detach(token)


def seen() -> object:
    return get_value(KEY)


@pytest.mark.usefixtures("within")
def test_a_thread_runs_in_the_context_that_it_was_started_in() -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(seen()))
    thread.start()
    thread.join()
    assert found == ["here"]


@pytest.mark.usefixtures("within")
def test_a_subclass_with_a_run_of_its_own_does_too() -> None:
    class Worker(threading.Thread):
        found: object = None

        def run(self) -> None:
            self.found = seen()

    worker = Worker()
    worker.start()
    worker.join()
    assert worker.found == "here"


@pytest.mark.usefixtures("within")
def test_a_timer_does_too() -> None:
    found: list[object] = []
    timer = threading.Timer(0.001, lambda: found.append(seen()))
    timer.start()
    timer.join()
    assert found == ["here"]


def test_a_task_runs_in_the_context_that_it_was_given_in_and_the_worker_forgets_it() -> None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        token = attach(set_value(KEY, "first"))
        first = pool.submit(seen)
        detach(token)
        after = pool.submit(seen)
        token = attach(set_value(KEY, "second"))
        second = pool.submit(seen)
        detach(token)
        assert (first.result(), after.result(), second.result()) == ("first", None, "second")


@pytest.mark.usefixtures("within")
def test_arguments_results_and_errors_pass() -> None:
    def divide(one: int, *, by: int) -> float:
        return one / by

    with ThreadPoolExecutor(max_workers=2) as pool:
        assert pool.submit(divide, 1, by=2).result() == 0.5
        with pytest.raises(ZeroDivisionError):
            pool.submit(divide, 1, by=0).result()
        assert list(pool.map(abs, [-1, -2])) == [1, 2]
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(divide, 1, by=1)
    assert seen() == "here"


def test_a_thread_outside_of_spans_is_left_alone() -> None:
    thread = threading.Thread(target=seen)
    thread.start()
    thread.join()
    assert "run" not in vars(thread)

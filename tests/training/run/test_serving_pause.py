import time
from collections.abc import Callable, Iterator

import pytest

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.training.promotion.serving_pause import HAND_OVER_TTL_S, ServingPause

from ..gateway_stand_in import GatewayStandIn, gateway_stand_in


@pytest.fixture
def gateway(data_dir: DataDir) -> Iterator[GatewayStandIn]:
    with gateway_stand_in(data_dir) as running:
        yield running


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def pause(data_dir: DataDir, said: list[str]) -> ServingPause:
    return ServingPause(data_dir.path, "j1", said.append, renew_s=0.02, ttl_s=7)


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at, "the condition did not become true in time"
        time.sleep(0.01)


def test_the_engine_is_held_stopped_until_the_end(
    pause: ServingPause, gateway: GatewayStandIn, said: list[str]
) -> None:
    with pause:
        assert gateway.asked == []
        pause.begin()
        assert gateway.asked[0] == ("pause", {"holder": "job j1", "ttl_s": 7})
        wait_until(lambda: len(gateway.asked) > 3)
    assert gateway.asked[-1] == ("resume", {"holder": "job j1"})
    assert gateway.paths == ["pause", "resume"]
    assert said == ["serving is paused while this job trains (engine: paused)", "serving is resumed"]


@pytest.mark.parametrize("error", [JobError("diverged"), SystemExit(143), KeyboardInterrupt()])
def test_a_job_that_ends_badly_gives_it_back_too(
    pause: ServingPause, gateway: GatewayStandIn, error: BaseException
) -> None:
    def run() -> None:
        with pause:
            pause.begin()
            raise error

    with pytest.raises(type(error)):
        run()
    assert gateway.paths == ["pause", "resume"]


def test_nothing_is_given_back_that_was_not_taken(pause: ServingPause, gateway: GatewayStandIn) -> None:
    with pause:
        pause.hand_over()
    assert gateway.asked == []


def test_a_deployment_is_not_disturbed_by_renewals(pause: ServingPause, gateway: GatewayStandIn) -> None:
    with pause:
        pause.begin()
        pause.hand_over()
        before = len(gateway.asked)
        assert gateway.asked[-1] == ("pause", {"holder": "job j1", "ttl_s": HAND_OVER_TTL_S})
        time.sleep(0.1)
        assert len(gateway.asked) == before
    assert gateway.paths == ["pause", "resume"]


def test_a_gateway_that_comes_up_later_is_paused_then(pause: ServingPause, data_dir: DataDir, said: list[str]) -> None:
    with pause:
        pause.begin()
        assert said == ["no gateway runs, so no serving is paused"]
        with gateway_stand_in(data_dir) as late:
            wait_until(lambda: late.state == "paused")
    assert "it serves again when the pause expires" in said[-1]


def test_a_gateway_that_cannot_pause_fails_the_job_before_it_trains(
    pause: ServingPause, gateway: GatewayStandIn
) -> None:
    gateway.refusals["pause"] = (409, "it serves from an upstream")
    with pytest.raises(JobError, match=r"rejected \(409\): it serves from an upstream") as caught, pause:
        pause.begin()
    assert "without pause_serving" in caught.value.next_step
    assert gateway.paths == ["pause"]


def test_a_gateway_that_fails_at_the_end_does_not_change_the_outcome(
    pause: ServingPause, gateway: GatewayStandIn
) -> None:
    with pause:
        pause.begin()
        gateway.refusals["resume"] = (500, "")
    assert gateway.paths == ["pause", "resume"]

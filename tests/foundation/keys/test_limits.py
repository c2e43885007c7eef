"""Limits by API key, without a server."""

from http import HTTPStatus

import pytest

from spanloop.foundation.keys.limits import Admission, KeyLimiter, LimitExceeded
from spanloop.foundation.settings import KeyLimits, Limits


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def admitted(limiter: KeyLimiter, name: str) -> Admission:
    admission = limiter.admit(name)
    assert isinstance(admission, Admission), admission
    return admission


def refused(limiter: KeyLimiter, name: str) -> LimitExceeded:
    admission = limiter.admit(name)
    assert isinstance(admission, LimitExceeded)
    return admission


@pytest.mark.parametrize(("rate", "burst", "wait_s"), [(3.0, 3, 1), (0.1, 1, 10)])
def test_above_its_rate_a_key_waits_as_long_as_it_is_told(rate: float, burst: int, wait_s: int) -> None:
    clock = Clock()
    limiter = KeyLimiter(Limits(requests_per_s=rate), clock)
    for _ in range(burst):
        admitted(limiter, "a").end()
    over = refused(limiter, "a")
    assert (over.status, over.retry_after_s) == (HTTPStatus.TOO_MANY_REQUESTS, wait_s)
    assert f"the API key a has a limit of {rate:g} requests a second" in over.message
    admitted(limiter, "b")
    clock.now_s += over.retry_after_s
    admitted(limiter, "a")


def test_the_rate_holds_over_time_whatever_a_client_tries() -> None:
    clock = Clock()
    limiter = KeyLimiter(Limits(requests_per_s=10), clock)
    count = 0
    for _ in range(1_000):
        clock.now_s += 0.01
        count += isinstance(limiter.admit("a"), Admission)
    assert 100 <= count <= 110


def test_concurrent_requests_are_limited_and_an_ended_one_makes_room() -> None:
    limiter = KeyLimiter(Limits(concurrent_requests=2))
    first, second = admitted(limiter, "a"), admitted(limiter, "a")
    over = refused(limiter, "a")
    assert (over.status, over.retry_after_s) == (HTTPStatus.SERVICE_UNAVAILABLE, 1)
    first.end()
    first.end()
    third = admitted(limiter, "a")
    refused(limiter, "a")
    with second, third:
        pass
    with pytest.raises(ZeroDivisionError), admitted(limiter, "a"):
        raise ZeroDivisionError
    admitted(limiter, "a")


def test_a_key_has_its_own_limits_and_the_others_those_of_all() -> None:
    limits = Limits(requests_per_s=5, body_bytes=100, keys={"big": KeyLimits(body_bytes=1_000)})
    assert limits.of("big") == KeyLimits(requests_per_s=5, body_bytes=1_000)
    assert limits.of("other") == KeyLimits(requests_per_s=5, body_bytes=100)
    limiter = KeyLimiter(limits)
    assert admitted(limiter, "big").body_bytes == 1_000
    assert admitted(limiter, "other").body_bytes == 100


def test_requests_without_a_key_and_without_limits_are_not_counted() -> None:
    limited = KeyLimiter(Limits(concurrent_requests=1))
    assert [admitted(limited, "").body_bytes for _ in range(3)] == [None] * 3
    unlimited = KeyLimiter(Limits())
    assert [admitted(unlimited, "a").body_bytes for _ in range(3)] == [None] * 3

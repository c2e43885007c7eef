"""Test leases, their heartbeat and their fence over a store whose clock the test moves."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spanloop.foundation.errors import StoreError
from spanloop.foundation.leases import (
    Fence,
    Heartbeat,
    Lease,
    LeaseLostError,
    StoredLease,
    Term,
    WaitStoppedError,
    has_ended,
)
from spanloop.foundation.processes.identity import ProcessIdentity

HERE = ProcessIdentity.current()
ENDED = HERE._replace(start_ticks=1)
ELSEWHERE = ENDED._replace(machine="another")


@dataclass
class World:
    """A clock, and the row of one lease."""

    now_s: float = 100.0
    owner: str = ""
    token: int = 0
    until_s: float = 0.0
    is_away: bool = False
    renewals: int = 0
    renewed: threading.Event = field(default_factory=threading.Event)

    def lease(self, owner: object, *, margin_s: float = 0.0, settle_s: float = 0.0) -> Lease:
        row = Row(self, str(owner))
        return Lease("work", row, margin_s=margin_s, settle_s=settle_s, elapsed_s=lambda: self.now_s)


class Row:
    duration_s = 15.0

    def __init__(self, world: World, owner: str) -> None:
        self._world = world
        self._owner = owner

    def read(self) -> StoredLease:
        return StoredLease(self._world.owner, self._world.until_s - self._world.now_s)

    def take(self) -> int | None:
        world = self._world
        if not self.read().is_free:
            return None
        world.owner, world.token, world.until_s = self._owner, world.token + 1, world.now_s + self.duration_s
        return world.token

    def renew(self, token: int) -> bool:
        world = self._world
        world.renewals += 1
        if world.renewals > 2:
            world.renewed.set()
        if world.is_away:
            raise StoreError("away")
        if world.token != token:
            return False
        world.until_s = world.now_s + self.duration_s
        return True

    def release(self, token: int) -> None:
        if self._world.token == token:
            self._world.owner = ""


def test_one_holds_and_another_takes_what_expired_with_a_newer_token() -> None:
    world = World()
    first, second = world.lease(ELSEWHERE, margin_s=3), world.lease(HERE)
    assert (first.acquire(), second.acquire(), first.token, second.token) == (True, False, 1, None)
    world.now_s += 12
    assert not first.is_held, "it stops before another may begin"
    assert not second.acquire()
    world.now_s += 3
    assert second.acquire()
    assert (second.token, second.is_held) == (2, True)
    with pytest.raises(LeaseLostError, match="'work' is lost"):
        first.check()
    assert first.token is None
    with pytest.raises(LeaseLostError):
        first.renew()
    second.check()
    assert world.renewals == 1, "the store is asked only when the lease was not renewed in time"


def test_an_expired_lease_that_nobody_took_goes_on() -> None:
    world = World()
    lease = world.lease(HERE)
    lease.acquire()
    world.now_s += 60
    lease.check()
    assert (lease.token, lease.is_held) == (1, True)


def test_hold_renews_when_a_third_has_passed_and_takes_again_what_was_lost() -> None:
    world = World()
    lease = world.lease(HERE)
    assert lease.hold()
    world.now_s += 4.9
    assert lease.hold()
    assert world.renewals == 0
    world.now_s += 0.1
    assert lease.hold()
    assert (world.renewals, world.until_s) == (1, world.now_s + 15)
    world.owner, world.token, world.until_s = str(ELSEWHERE), 5, world.now_s + 15
    world.now_s += 5
    assert not lease.hold()
    world.now_s += 10
    assert lease.hold()
    assert lease.token == 6


def test_a_released_lease_is_free_at_once_and_a_lost_one_is_not_released() -> None:
    world = World()
    first, second = world.lease(ELSEWHERE), world.lease(HERE)
    second.release()
    first.acquire()
    first.release()
    assert second.acquire()
    first.release()
    assert (world.owner, first.token) == (str(HERE), None)


@pytest.mark.parametrize("suffix", ["", " 1234"])
def test_the_lease_of_a_process_that_ended_is_taken_when_its_writes_have_settled(suffix: str) -> None:
    world = World(owner=f"{ENDED}{suffix}", until_s=1e9)
    lease = world.lease(HERE, settle_s=1)
    assert not lease.acquire()
    world.now_s += 1
    assert lease.acquire()
    assert has_ended(f"{ENDED}{suffix}")
    assert not any(map(has_ended, (f"{ELSEWHERE}{suffix}", f"{HERE}{suffix}", "", "nonsense")))
    world.owner = f"{ELSEWHERE}{suffix}"
    assert not world.lease(HERE).acquire(), "its pid means nothing here"


def test_a_wait_ends_with_the_lease_or_when_it_is_stopped() -> None:
    world = World(owner=str(ELSEWHERE), until_s=101)
    lease = world.lease(HERE)

    def forward() -> bool:
        world.now_s += 0.5
        return False

    lease.wait(forward)
    assert (lease.token, world.now_s) == (1, 101)
    with pytest.raises(WaitStoppedError):
        world.lease(ELSEWHERE).wait(lambda: True)


def test_a_thread_renews_while_a_block_runs_even_when_the_store_was_away_until_the_lease_is_lost() -> None:
    world = World()
    lease = world.lease(HERE)
    lease.acquire()
    world.is_away = True
    with lease.renewing(0.001, tolerated=StoreError):
        assert world.renewed.wait(60)
        assert lease.is_held
        world.is_away, world.token = False, 2
        while lease.token is not None:
            world.renewed.wait(0.001)


def test_a_heartbeat_ends_by_itself_or_when_it_is_stopped_once() -> None:
    beats: list[int] = []
    ended = threading.Event()

    def beat() -> bool:
        beats.append(1)
        if len(beats) == 3:
            ended.set()
        return len(beats) < 3

    heartbeat = Heartbeat(beat, 0.001, name="beat").start()
    assert ended.wait(60)
    assert heartbeat.stop()
    assert not heartbeat.stop()
    assert len(beats) == 3


def test_a_term_counts_from_before_its_renewal() -> None:
    now_s = [0.0]
    term = Term(9.0, margin_s=1.0, elapsed_s=lambda: now_s[0])
    assert (term.is_valid, term.is_due) == (False, True)
    began_s = term.now_s()
    now_s[0] = 2.9
    term.renewed(began_s)
    assert (term.is_valid, term.is_due) == (True, False)
    now_s[0] = 3.0
    assert (term.is_valid, term.is_due) == (True, True)
    now_s[0] = 8.0
    assert not term.is_valid


def test_a_fence_lets_the_newest_token_write(tmp_path: Path) -> None:
    path = tmp_path / "token"

    def load() -> int | None:
        return int(path.read_text()) if path.exists() else None

    def save(token: int) -> None:
        path.write_text(str(token))

    fence = Fence(load, lambda token, newest: ValueError(f"{token} < {newest}"), save)
    with pytest.raises(ValueError, match="3 < None"):
        fence.check(3)
    fence.claim(3)
    fence.claim(3)
    fence.check(3)
    fence.claim(4)
    for write in (fence.claim, fence.check):
        with pytest.raises(ValueError, match="3 < 4"):
            write(3)
    with pytest.raises(ValueError, match="None < 4"):
        fence.check(None)

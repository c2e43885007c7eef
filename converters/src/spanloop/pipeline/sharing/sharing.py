"""Share the batches of a run with other pipelines, and convert those of another run.

Invariant: a pipeline converts a closed set only while it holds its claim, and inserts only under the lease of the run
whose plan it is and its registration. The leader ends its run when no other pipeline holds a batch of its plan; when it
cannot know that, it lets its lease expire.
"""

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, Self

import polars as pl

from spanloop.foundation.control.sessions import ControlSessions
from spanloop.foundation.errors import DataDirectoryError, SpanloopError
from spanloop.foundation.leases import LeaseLostError
from spanloop.foundation.leases.lease import POLL_S
from spanloop.foundation.paths import DataDir
from spanloop.store import Store

from ..affected_traces import AffectedTraces, affected_traces
from ..batches import Batch
from ..leased_inserts import LeasedInserts
from ..report import Report
from ..run_lease import FollowedLease, RunLease
from .plan import Plan, PlanEndedError, PutBackError, TakenBatch
from .registration import Registration

_log: Final = logging.getLogger("pipeline")

Claim = Callable[[Sequence[str]], None]
"""Claims the ids of episodes before they are written."""


class ConvertSet(Protocol):
    """Converts one closed set and stores it."""

    def __call__(self, affected: AffectedTraces, inserts: LeasedInserts, *, full: bool, claim: Claim = ...) -> Report:
        """Return the counts; raise what ``claim`` and ``inserts`` raise."""
        ...


class Conversion(NamedTuple):
    """The way in which this process converts the batches of any run."""

    store: Store
    convert_set: ConvertSet
    max_bytes: int
    session_is_episode: bool
    should_stop: Callable[[], bool]


class Sharing:
    """The part of one pipeline in the work that several share.

    Args:
        sessions: The control database.
        registration: Of this pipeline.
    """

    def __init__(self, sessions: ControlSessions, registration: Registration) -> None:
        self._sessions = sessions
        self._registration = registration

        self._is_away = False

    @classmethod
    @contextmanager
    def joined(cls, data_dir: DataDir) -> Generator[Self]:
        """Register this process as a pipeline while the block runs; again when the control database was away.

        Raises:
            ConfigurationError: The URL of the control database cannot be used.
        """
        sessions = ControlSessions(data_dir.control_db)
        registration = Registration(sessions)
        sharing = cls(sessions, registration)
        with sharing._tolerating_outages():
            registration.ensure()
        with registration.renewed_by_thread():
            try:
                yield sharing
            finally:
                with sharing._tolerating_outages():
                    registration.release()

    def describe(self, activity: str, *, more_spans: int = 0) -> None:
        """State what this pipeline does, for ``spanloop status``."""
        self._registration.describe(activity, more_spans=more_spans)

    def has_others(self) -> bool:
        """Return whether another pipeline could take batches; False where the control database is away."""
        answers: list[bool] = []
        with self._tolerating_outages():
            self._registration.ensure()
            answers.append(self._registration.has_others())
        return any(answers)

    def lead(
        self,
        conversion: Conversion,
        lease: RunLease,
        batches: Sequence[Batch],
        *,
        full: bool,
        on_spans: Callable[[int], None],
    ) -> Report:
        """Convert a page of batches together with the pipelines that wait for the lease.

        Args:
            conversion: How to convert.
            lease: The lease of this run.
            batches: The page.
            full: Write unchanged episodes too.
            on_spans: Called with the number of new spans of each closed set that this process has converted.

        Returns:
            The counts of all pipelines; all batches are converted, unless ``should_stop`` said so.

        Raises:
            LeaseLostError: The run has lost its lease.
            StoreError: ClickHouse refused or is unreachable.
            DataDirectoryError: The control database is away; the lease expires, and a later run repeats the work.
        """
        try:
            with self._published(lease, batches, full=full) as plan:
                while not plan.is_done() and not conversion.should_stop():
                    lease.check()
                    try:
                        self._work(plan, conversion, lease, on_spans)
                    except LeaseLostError:
                        lease.check()  # else its registration was removed: another pipeline has the batch
                    if not plan.is_done() and not conversion.should_stop():
                        time.sleep(POLL_S)
                return plan.report()
        except PlanEndedError:
            raise LeaseLostError("The plan of this run was removed by a later run.") from None

    def help(self, conversion: Conversion, run_owner: str) -> None:
        """Convert batches of the run that holds the lease, until there is none to take.

        Args:
            conversion: How to convert.
            run_owner: The holder of the lease.

        Raises:
            StoreError: ClickHouse refused or is unreachable.
        """
        spans: list[int] = []

        def count(more: int) -> None:
            spans.append(more)
            self.describe("converting", more_spans=more)

        try:
            with self._tolerating_outages():
                self._registration.ensure()
                plan = Plan.find(self._sessions, self._registration, run_owner)
                if plan is not None:
                    self._work(plan, conversion, FollowedLease(conversion.store, run_owner), count)
        except (LeaseLostError, PlanEndedError) as error:
            _log.info("a batch of another pipeline's run is left to it: %s", error)
        finally:
            self.describe("idle")
        if spans:
            _log.info("converted %d spans of the run of %s", sum(spans), run_owner)

    @contextmanager
    def _tolerating_outages(self) -> Generator[None]:
        """Go on without the control database; warn once."""
        try:
            yield
        except DataDirectoryError as error:
            if not error.is_transient:
                raise
            if not self._is_away:
                _log.warning("%s; this pipeline shares no work meanwhile", error)
            self._is_away = True
        else:
            self._is_away = False

    @contextmanager
    def _published(self, lease: RunLease, batches: Sequence[Batch], *, full: bool) -> Generator[Plan]:
        lease.share(is_shared=True)
        with _expiring_on_error(lease):
            plan = Plan.publish(self._sessions, self._registration, batches, lease.shared_owner, full=full)
        try:
            yield plan
        finally:
            with _expiring_on_error(lease):
                while not plan.close():
                    time.sleep(POLL_S)
            lease.share(is_shared=False)

    def _work(
        self,
        plan: Plan,
        conversion: Conversion,
        run: RunLease | FollowedLease,
        on_spans: Callable[[int], None],
    ) -> None:
        inserts = LeasedInserts(conversion.store, run, [self._registration])
        while not conversion.should_stop() and (taken := plan.take()) is not None:
            try:
                self._convert_batch(plan, taken, conversion, inserts, on_spans)
            except PutBackError:
                continue
            except BaseException:
                self._give_away(plan, taken)
                raise

    def _give_away(self, plan: Plan, taken: TakenBatch) -> None:
        """Put a batch back, or let the registration expire, which puts it back too."""
        try:
            plan.put_back(taken)
        except PlanEndedError:
            return
        except SpanloopError:
            self._registration.lose()

    def _convert_batch(
        self,
        plan: Plan,
        taken: TakenBatch,
        conversion: Conversion,
        inserts: LeasedInserts,
        on_spans: Callable[[int], None],
    ) -> None:
        remaining, since = taken.batch, taken.since
        parts = affected_traces(
            conversion.store,
            taken.batch,
            max_bytes=conversion.max_bytes,
            session_is_episode=conversion.session_is_episode,
        )
        for affected in parts:
            read_since = since
            stored_ids = affected.stored["episode_id"].to_list()
            plan.claim(taken, {*affected.trace_ids, *affected.batch.trace_ids, *stored_ids}, since=read_since)

            def claim_episodes(ids: Sequence[str], read_since: int = read_since) -> None:
                plan.claim(taken, ids, since=read_since)

            report = conversion.convert_set(affected, inserts, full=plan.is_full, claim=claim_episodes)
            on_spans(report.spans)
            is_converted = pl.col("trace_id").is_in(sorted(affected.batch.trace_ids))
            remaining = Batch(remaining.traces.filter(~is_converted))
            if remaining.traces.is_empty():
                plan.finish(taken, report)
                return
            since = plan.convert_next(taken, remaining, report)
            if conversion.should_stop():
                plan.put_back(taken)
                return
        plan.finish(taken)


@contextmanager
def _expiring_on_error(lease: RunLease) -> Generator[None]:
    """Let a lease expire when an error hides whether other pipelines write under it."""
    try:
        yield
    except SpanloopError:
        lease.lose()
        raise

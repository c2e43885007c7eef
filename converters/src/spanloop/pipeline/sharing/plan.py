"""A plan: a page of batches in the control database, which several pipelines convert.

Invariant: a batch has one holder. Two claims that are held at a time share no trace and no episode, and a closed set
that was read before an overlapping claim ended is not claimed. Each step is one transaction that checks the pipeline's
token, so a pipeline whose lease has ended takes, claims and finishes nothing.
"""

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from spanloop.foundation.control.sessions import ControlSessions
from spanloop.foundation.leases import LeaseLostError

from ..batches import Batch
from ..report import Report
from .positions import choose_position
from .registration import Registration, end_claim
from .tables import BatchRow, ClaimRow, PlanRow

_ID_BYTES: Final = 8


class PlanEndedError(Exception):
    """The plan was removed by its leader, or by a later one."""


class PutBackError(Exception):
    """A closed set overlaps with that of another pipeline, so its batch was put back."""


class TakenBatch(NamedTuple):
    """A batch that this pipeline converts."""

    position: int
    token: int
    """Token of this pipeline."""
    batch: Batch
    since: int
    """Number of claims that had ended when the batch was taken."""


class Plan:
    """A plan, as one pipeline sees it.

    Args:
        sessions: The control database.
        registration: Of this pipeline.
        plan_id: The plan.
        is_full: Whether unchanged episodes are written too.
    """

    def __init__(self, sessions: ControlSessions, registration: Registration, plan_id: int, *, is_full: bool) -> None:
        self.is_full: Final = is_full
        self._sessions = sessions
        self._registration = registration
        self._plan_id = plan_id
        self._last: int | None = None

    @classmethod
    def publish(
        cls,
        sessions: ControlSessions,
        registration: Registration,
        batches: Sequence[Batch],
        run_owner: str,
        *,
        full: bool,
    ) -> "Plan":
        """Store a plan in place of all former ones, which belong to runs that have ended."""
        token = registration.ensure()
        with sessions.write() as session:
            registration.require(session, token)
            for row in (ClaimRow, BatchRow, PlanRow):
                session.execute(delete(row))
            plan = PlanRow(run_owner=run_owner, is_full=full)
            session.add(plan)
            session.flush()
            session.add_all(
                BatchRow(plan_id=plan.plan_id, position=position, traces=_to_bytes(batch.traces))
                for position, batch in enumerate(batches)
            )
            return cls(sessions, registration, plan.plan_id, is_full=full)

    @classmethod
    def find(cls, sessions: ControlSessions, registration: Registration, run_owner: str) -> "Plan | None":
        """Return the plan of the run that holds the lease, if it has one with a batch that waits."""
        with sessions.read() as session:
            waiting = select(BatchRow.plan_id).where(BatchRow.is_done.is_(False), BatchRow.holder.is_(None))
            statement = select(PlanRow.plan_id, PlanRow.is_full).where(
                PlanRow.run_owner == run_owner, PlanRow.plan_id.in_(waiting)
            )
            plan = session.execute(statement).first()
        return None if plan is None else cls(sessions, registration, plan.plan_id, is_full=plan.is_full)

    def take(self) -> TakenBatch | None:
        """Take a batch that nobody holds; None when all are done, held, or wait for a claim.

        Raises:
            PlanEndedError: The plan was removed.
            LeaseLostError: This pipeline's lease has ended; it registers again.
        """
        token = self._registration.ensure()
        with self._sessions.write() as session:
            self._registration.require(session, token)
            plan = self._plan(session)
            of_plan = BatchRow.plan_id == self._plan_id
            columns = (BatchRow.position, BatchRow.holder, BatchRow.blocked_by)
            rows = session.execute(select(*columns).where(of_plan, BatchRow.is_done.is_(False))).all()
            held_claims = frozenset(
                session.scalars(
                    select(ClaimRow.claim_id).where(ClaimRow.plan_id == self._plan_id, ClaimRow.ended.is_(None))
                )
            )
            free = [position for position, holder, blocked in rows if holder is None and blocked not in held_claims]
            held = [position for position, holder, _ in rows if holder is not None]
            position = choose_position(free, held, self._last)
            if position is None:
                return None
            row = session.get_one(BatchRow, (self._plan_id, position))
            row.holder, row.blocked_by = token, None
            self._last = position
            return TakenBatch(position, token, _to_batch(row.traces), plan.ended_claims)

    def claim(self, taken: TakenBatch, ids: Iterable[str], *, since: int) -> None:
        """Claim ids of traces or episodes, besides those that are claimed for the batch.

        Args:
            taken: The batch.
            ids: The ids.
            since: Number of claims that had ended before the ids were read from the store.

        Raises:
            PutBackError: Another pipeline has, or has had since, one of them.
            PlanEndedError: The plan was removed.
            LeaseLostError: This pipeline's lease has ended.
        """
        hashes = _hashes(ids)
        with self._sessions.write() as session:
            row = self._require(session, taken)
            claims = session.scalars(
                select(ClaimRow).where(
                    ClaimRow.plan_id == self._plan_id, or_(ClaimRow.ended.is_(None), ClaimRow.ended > since)
                )
            ).all()
            mine = next((each for each in claims if each.ended is None and each.position == taken.position), None)
            met = next((each for each in claims if each is not mine and _overlap(each, hashes)), None)
            if met is None:
                if mine is None:
                    session.add(
                        ClaimRow(
                            plan_id=self._plan_id, position=taken.position, holder=taken.token, ids=hashes.tobytes()
                        )
                    )
                else:
                    mine.ids += hashes.tobytes()
                return
            row.holder, row.blocked_by = None, met.claim_id
            if mine is not None:
                end_claim(session, mine)
        raise PutBackError

    def convert_next(self, taken: TakenBatch, remaining: Batch, report: Report) -> int:
        """End the claim of a batch of which traces remain; return the number of claims that have ended.

        Raises:
            PlanEndedError: The plan was removed.
            LeaseLostError: This pipeline's lease has ended.
        """
        with self._sessions.write() as session:
            row = self._require(session, taken)
            row.traces = _to_bytes(remaining.traces)
            return self._end_claim(session, row, report)

    def finish(self, taken: TakenBatch, report: Report | None = None) -> None:
        """End the claim of a batch that is converted; it raises as `convert_next`."""
        with self._sessions.write() as session:
            row = self._require(session, taken)
            self._end_claim(session, row, report or Report())
            row.is_done, row.holder, row.traces = True, None, b""

    def put_back(self, taken: TakenBatch) -> None:
        """Let another pipeline take a batch; what is converted of it stays so. It raises as `convert_next`."""
        with self._sessions.write() as session:
            row = self._require(session, taken)
            self._end_claim(session, row, Report())
            row.holder = None

    def is_done(self) -> bool:
        """Return whether all batches are converted."""
        with self._sessions.read() as session:
            self._plan(session)
            return not session.scalar(
                select(func.count())
                .select_from(BatchRow)
                .where(BatchRow.plan_id == self._plan_id, BatchRow.is_done.is_(False))
            )

    def report(self) -> Report:
        """Return the counts of all that is converted."""
        with self._sessions.read() as session:
            texts = session.scalars(select(BatchRow.report).where(BatchRow.plan_id == self._plan_id)).all()
        return sum((_to_report(text) for text in texts), Report())

    def close(self) -> bool:
        """Give no more batches away; remove the plan if no other pipeline holds one, and return whether that is so.

        Raises:
            LeaseLostError: This pipeline's lease has ended; it registers again.
        """
        token = self._registration.ensure()
        with self._sessions.write() as session:
            self._registration.require(session, token)
            of_plan = BatchRow.plan_id == self._plan_id
            session.execute(delete(BatchRow).where(of_plan, or_(BatchRow.holder.is_(None), BatchRow.holder == token)))
            if session.scalar(select(func.count()).select_from(BatchRow).where(of_plan)):
                return False
            session.execute(delete(ClaimRow).where(ClaimRow.plan_id == self._plan_id))
            session.execute(delete(PlanRow).where(PlanRow.plan_id == self._plan_id))
            return True

    def _plan(self, session: Session) -> PlanRow:
        plan = session.get(PlanRow, self._plan_id)
        if plan is None:
            raise PlanEndedError
        return plan

    def _require(self, session: Session, taken: TakenBatch) -> BatchRow:
        self._registration.require(session, taken.token)
        self._plan(session)
        row = session.get(BatchRow, (self._plan_id, taken.position))
        if row is None:
            raise PlanEndedError
        if row.holder != taken.token:
            raise LeaseLostError(f"Batch {taken.position} of the plan has another holder; nothing was written.")
        return row

    def _end_claim(self, session: Session, row: BatchRow, report: Report) -> int:
        row.report = json.dumps(asdict(_to_report(row.report) + report))
        claim = session.scalars(
            select(ClaimRow).where(
                ClaimRow.plan_id == self._plan_id, ClaimRow.position == row.position, ClaimRow.ended.is_(None)
            )
        ).first()
        return self._plan(session).ended_claims if claim is None else end_claim(session, claim)


def _hashes(ids: Iterable[str]) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    data = b"".join(blake2b(each.encode(), digest_size=_ID_BYTES).digest() for each in ids)
    return np.frombuffer(data, dtype=np.uint64)


def _overlap(claim: ClaimRow, hashes: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> bool:
    return bool(np.isin(np.frombuffer(claim.ids, dtype=np.uint64), hashes).any())


def _to_bytes(traces: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    traces.write_ipc(file, compression="zstd")
    return file.getvalue()


def _to_batch(data: bytes) -> Batch:
    return Batch(pl.read_ipc(data))


def _to_report(text: str) -> Report:
    return Report(**json.loads(text)) if text else Report()

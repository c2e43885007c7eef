"""How all processes of one job on this machine are recognised.

``spanloop.foundation.processes.marked`` finds and ends them.

Invariant: a process belongs to a job only if it has the job's id and a token of this lease or an earlier one in its
environment. So the runner of a later lease never gets a signal.
"""

from typing import Final, NamedTuple

from spanloop.foundation.processes.marked import VariableMark

JOB_ID_ENV: Final = "SPANLOOP_JOB_ID"
"""The id of the job that a process belongs to."""

JOB_TOKEN_ENV: Final = "SPANLOOP_JOB_TOKEN"  # noqa: S105 - the name of a variable
"""The fencing token that the job runner passes to the job's process."""

JOB_LEASE_ENV: Final = "SPANLOOP_JOB_LEASE"
"""Id and token of the job that a process belongs to, by which the job's reaper finds it."""


def lease_mark(job_id: str, token: int) -> VariableMark:
    """Return the mark of a job's processes under one lease."""
    return VariableMark(JOB_LEASE_ENV, f"{job_id}/{token}/")


class JobMark(NamedTuple):
    """Marks a job's processes by their environment, which they keep in any session."""

    job_id: str
    newest_token: int
    """Token of the lease; processes with a newer token belong to another lease."""

    def is_on(self, environment: bytes) -> bool:
        """Whether ``environment`` (from /proc) belongs to the job, under this lease or an earlier one."""
        lines = environment.split(b"\0")
        prefix = f"{JOB_TOKEN_ENV}=".encode()
        if f"{JOB_ID_ENV}={self.job_id}".encode() not in lines:
            return False
        tokens = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        return any(token.isdigit() and int(token) <= self.newest_token for token in tokens)

"""Control state of training jobs: job queue, state machine, leases with fencing tokens, schedules, scheduler.

Invariant: every change of a job's state is one conditional UPDATE that names the allowed origin states and, for the
process that runs the job, the fencing token of its lease. A process that lost its lease cannot change anything.
"""

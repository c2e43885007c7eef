"""Control state: who runs which job, when, and what came of it.

The invariant: every change of a job's state is one conditional UPDATE that names the states it may start from and,
for the one who runs the job, the fencing token of its lease. Whoever lost the lease changes nothing any more.
"""

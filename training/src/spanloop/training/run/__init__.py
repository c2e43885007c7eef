"""One job, from its plan to its version; the processes that prepare, run and watch it."""

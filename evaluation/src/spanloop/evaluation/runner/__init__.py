"""Run an agent on tasks: a command or a Python callable, once for each task and attempt, graded and stored.

``run`` is the loop, ``ledger`` its memory on disk, ``command_agent`` and ``callable_agent`` make one attempt,
``answers`` finds what the agent answered, ``stored_attempts`` writes the results to ClickHouse.
"""

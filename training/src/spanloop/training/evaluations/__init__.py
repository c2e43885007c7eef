"""Evaluations as jobs: where an agent and its tasks are stated, the plan, the queue, and the process that runs one."""

"""Attempts of an agent at tasks, and what they are worth: tasks, graders, the task runner, results."""

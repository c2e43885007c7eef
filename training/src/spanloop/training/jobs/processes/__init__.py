"""The loops of scheduler and runner, and the processes of jobs."""

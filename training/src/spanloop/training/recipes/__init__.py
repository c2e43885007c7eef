"""What verl is told for each kind of job: Hydra overrides, computed from a plan and nothing else."""

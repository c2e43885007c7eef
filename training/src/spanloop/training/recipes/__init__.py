"""Recipes: the Hydra overrides that configure verl for each kind of job, computed from a plan alone."""

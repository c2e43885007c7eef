"""The Hydra overrides that configure verl for a recipe, computed from a plan alone."""

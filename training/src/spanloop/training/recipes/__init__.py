"""Recipes: one class for each way to learn, with its settings, its advantage and its loss.

Invariant: no module here imports torch, verl or ray, so that the command line, the job's process and the pages know
every recipe. Tensors reach a recipe as arguments of its loss, in the process that trains.
"""

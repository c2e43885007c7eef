"""The adapter between spanloop and verl 0.9.1.

These modules run in the verl subprocess of one job (``main``) or in its Ray workers. They read a `TrainPlan` and the
dataset that it names, write metrics, checkpoints and, on failure, ``failure.json``, and never access the store. verl,
Ray and TransferQueue are untyped, so these modules are excepted from strict typing.
"""

"""The adapter between spanloop and verl 0.9.1.

These modules run in the verl subprocess of one job (``main``) or in its Ray workers. They exchange files with the rest
of spanloop: they read a :class:`~spanloop.training.verl_plugin.train_plan.TrainPlan` and the dataset that it names, and
write metrics, checkpoints and, on failure, ``failure.json``. They never access the store. verl, Ray and TransferQueue
are untyped, so these modules are excepted from strict typing.
"""

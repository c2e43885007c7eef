"""The thin layer between spanloop and verl 0.9.1.

Everything in here runs in the verl subprocess of one job (``main``), or in Ray workers of that job, and talks to the
rest of spanloop through files only: it reads a :class:`~spanloop.training.verl_plugin.train_plan.TrainPlan` and the
dataset that the plan names, and writes metrics, checkpoints and, when it fails, ``failure.json``. It never touches
the store. verl, Ray and TransferQueue hand out ``Any``: these modules are excused from strict typing.
"""

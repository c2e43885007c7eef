"""Follow a running training: store its metrics and records, trace its steps, and ask the watchdogs.

The files of the subprocess are the source: whatever the store refuses now is sent later, and an attempt begins with
what earlier attempts left in theirs.
"""

import time
from pathlib import Path

from spanloop.store import Store

from ...recipes.policy_gradient import PolicyGradient
from ...spec.job_spec import JobSpec
from ...verl_plugin.early_stopping import EarlyStop
from .job_trace import JobTrace
from .metrics import MetricsTail, MetricsWriter, StepMetrics, logged_steps
from .samples import SampleWriter
from .watchdogs import Thresholds, Watchdogs


class TrainingWatch:
    """Follows the attempts of one job.

    Args:
        store: An open store.
        job_id: The job.
        spec: Its settings.
        folder: Its folder, with the dataset.
        trace: Of this attempt.
    """

    def __init__(self, store: Store, job_id: str, spec: JobSpec, folder: Path, trace: JobTrace) -> None:
        self._store = store
        self._trace = trace
        self._metrics = MetricsWriter(store, job_id)
        self._samples = SampleWriter(store, job_id, spec.kind, folder)
        recipe = spec.recipe
        thresholds = Thresholds(entropy_share=0, flat_batches=0, stall_minutes=spec.run.stall_minutes)
        if isinstance(recipe, PolicyGradient):
            thresholds = Thresholds(recipe.min_entropy_share, recipe.max_flat_batches, spec.run.stall_minutes)
        self._watchdogs = Watchdogs(thresholds, learning_rate=spec.optimiser.learning_rate)
        earlier = logged_steps(folder)
        self._metrics.add(earlier + self._samples.poll())
        for step in earlier:
            self._watchdogs.see(step)

    def look(self, tail: MetricsTail) -> tuple[list[StepMetrics], EarlyStop | None]:
        """Take what was written since the last call; return the new steps, and why the training should stop now."""
        steps = tail.read()
        ages = self._samples.poll()
        if steps or ages:
            self._metrics.add(steps + ages)
        now_s = time.monotonic()
        if not steps:
            return [], self._watchdogs.see_time(now_s)
        self._trace.steps([step for step in steps if not step.is_validation])
        self._trace.flush(self._store)
        endings = [self._watchdogs.see(step, now_s) for step in steps]
        return steps, next((ending for ending in endings if ending is not None), None)

    def flush(self) -> None:
        """Send all that the store has not taken yet.

        Raises:
            StoreError: The store is unreachable.
        """
        self._metrics.flush()
        self._samples.flush()

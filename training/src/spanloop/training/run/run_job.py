"""Run one leased job: ``python -m spanloop.training.run.run_job --data-dir D --job ID``.

The scheduler starts it with the lease's fencing token in the environment. The process of an evaluation becomes that of
``spanloop.training.evaluations.run_evaluation``. Every attempt at a training has the same steps and skips those that an
earlier attempt completed: for each stage export the dataset, train from the newest complete checkpoint, pass the gate
and register the version; then deploy or evaluate the last version. Only the scheduler writes the job's
state, except that it is evaluated; a non-zero exit status is a failure, and its reason is the error printed last.
The status EX_TEMPFAIL says that the cause passes.
"""

import argparse
import logging
import os
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import JobError, SpanloopError
from spanloop.foundation.paths import DataDir, write_atomically
from spanloop.foundation.telemetry.logs import add_log_fields, configure_logging
from spanloop.semconv import attributes as names
from spanloop.store import Store, connect

from ..dataset.dataset_objects import synchronise_dataset
from ..dataset.export import export_dataset
from ..dataset.manifest import Manifest, load_manifest
from ..jobs.paths import ControlPaths
from ..jobs.processes.stop_signal import exit_on_sigterm
from ..jobs.progress import job_token, report_progress
from ..jobs.queue_api import QueueApi
from ..jobs.training_ids import training_id
from ..models.adapter_versions import adapter_to_keep, full_weights
from ..models.base_model import BaseModelFacts, Training, read_base_model
from ..models.checkpoint_fence import claim
from ..models.checkpoint_objects import CheckpointObjects
from ..models.checkpoints import Checkpoint, assemble_model, discard_old, latest_checkpoint
from ..models.lineage import last_step, trainings_of_schedule, with_lineage
from ..models.registry import ADAPTER_BASE, ModelVersion, Registry
from ..promotion.serving_pause import ServingPause
from ..spec.job_spec import JobSpec
from ..spec.stages import Stage, stages_of
from ..spec.stored_spec import EvaluationSpec, Job, parse_any_spec
from ..verl_plugin.drift import read_ended
from ..verl_plugin.early_stopping import EarlyStop, read_early_stop
from ..verl_plugin.override_check import check_verl
from .deployment_of_job import TrainedJob, deploy_as_asked
from .gate import run_gate
from .gate_result import GateResult
from .job_api import JobApi
from .monitor.job_trace import JobTrace, trace_id_of, traced_job
from .monitor.metrics import MetricsTail, MetricsWriter, StepMetrics, final_metrics
from .monitor.watch import TrainingWatch
from .planning import make_plan, planned_steps
from .transient import EX_TEMPFAIL, is_transient
from .verl_process import VerlProcess, failure_of, finished_checkpoint, ray_folder, verl_process

_logger: Final = logging.getLogger("spanloop.training.run.run_job")
_POLL_S: Final = 0.2
_MERGED_BASE: Final = "base"
_EVALUATION: Final = "spanloop.training.evaluations.run_evaluation"
SPEC_NAME: Final = "spec.json"
"""File of a job's folder with the value of every setting."""


class StageRun(NamedTuple):
    """One stage of a job in one process."""

    data_dir: DataDir
    job: Job
    token: int
    stage: Stage
    """Its ``base`` is the version that the stage starts from."""
    steps_before: int
    """Steps of the stages before this one."""
    folder: Path
    """Of the stage."""
    registry: Registry
    pause: ServingPause
    trace: JobTrace

    @property
    def spec(self) -> JobSpec:
        """The settings of the stage."""
        return self.stage.spec

    @property
    def training_id(self) -> str:
        """Under which the stage's metrics and records are stored."""
        return training_id(self.job.id, self.stage.number)

    @property
    def checkpoint_objects(self) -> CheckpointObjects:
        """The stage's checkpoints in object storage."""
        return CheckpointObjects(self.data_dir.path, self.training_id, self.folder / "checkpoints", self.check_lease)

    def check_lease(self) -> None:
        """Raise JobLeaseLostError when another runner has the job."""
        self.registry.check_lease(self.job.id, self.token)


def run_job(data_dir: DataDir, job_id: str) -> ModelVersion:
    """Run the remaining steps of the job and return the resulting version.

    Raises:
        ConfigurationError: verl does not have what the job's overrides or loggers ask for.
        JobError: It cannot run, or failed; the message has the next step.
        JobLeaseLostError: Another runner has the job; nothing of ours counts any more.
        NotRunningError: No ClickHouse.
    """
    token = job_token()
    job = JobApi(data_dir).get(job_id)
    add_log_fields(attempt=job.attempt, trace_id=trace_id_of(job.id, job.attempt))
    folder = ControlPaths.of(data_dir).job(job_id)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SPEC_NAME, job.spec.model_dump_json(indent=1))
    check_verl(job.spec)
    registry = Registry(data_dir)
    with traced_job(data_dir, job) as trace, ServingPause(data_dir.path, job_id, _log) as pause:
        versions: list[ModelVersion] = []
        for stage in stages_of(job.spec):
            started = stage if not versions else stage.starting_from(versions[-1].reference)
            steps_before = sum(last_step(version) for version in versions)
            stage_folder = ControlPaths.of(data_dir).job(training_id(job_id, stage.number))
            stage_run = StageRun(data_dir, job, token, started, steps_before, stage_folder, registry, pause, trace)
            versions.append(registry.of_training(stage_run.training_id) or _run_stage(stage_run))
            _clear_scratch(stage_folder)
            stage_run.checkpoint_objects.remove()
        deploy_as_asked(TrainedJob(data_dir, job, token, versions[-1]), trace, pause, _log)
    _log(f"done: {versions[-1].reference}")
    return versions[-1]


def _run_stage(stage_run: StageRun) -> ModelVersion:
    stage = stage_run.stage
    if stage.total > 1:
        _log(f"{stage.title} from {stage.spec.base}")
    stage_run.folder.mkdir(parents=True, exist_ok=True)
    return _train_and_register(stage_run)


def _train_and_register(stage_run: StageRun) -> ModelVersion:
    with connect(stage_run.data_dir) as store:
        manifest, base = _dataset(stage_run, store)
        is_last = stage_run.stage.number == stage_run.stage.total
        # a later stage and the gate load full weights
        kept_adapter = adapter_to_keep(stage_run.registry, stage_run.spec, base.reference) if is_last else None
        watch = TrainingWatch(store, stage_run.training_id, stage_run.spec, stage_run.folder, stage_run.trace)
        ended = read_ended(stage_run.folder)
        limit = ended.step if ended else None
        stage_run.checkpoint_objects.fetch_newest(at_most=limit)
        checkpoint = latest_checkpoint(stage_run.folder / "checkpoints", at_most=limit)
        steps, _ = planned_steps(stage_run.spec, manifest)
        if ended is None and (checkpoint is None or checkpoint.step < steps):
            checkpoint = _train(stage_run, manifest, base, watch)
        watch.flush()
        if checkpoint is None:
            raise JobError(
                f"Job {stage_run.job.id}: its checkpoint is gone.", next_step="Submit a new job with its spec."
            )
        model = assemble_model(checkpoint, base.path, stage_run.folder / "model", kept_adapter=kept_adapter)
        gate = _pass_gate(stage_run, store, base, model, checkpoint.step)
    _log(f"registering the weights of step {checkpoint.step}")
    with stage_run.trace.span("rl.register") as span:
        version = stage_run.registry.add(
            stage_run.job.spec.result_name,
            model,
            parent=base.reference,
            job_id=stage_run.job.id,
            stage=stage_run.stage.number,
            token=stage_run.token,
            metadata={
                "kind": stage_run.spec.kind,
                "stage": stage_run.stage.number,
                "steps": checkpoint.step,
                "gate": str(gate) if gate else "",
                "ended_early": _end_reason(stage_run, steps),
                "dataset_sha256": manifest.data_sha256,
                "episodes": manifest.episodes.accepted,
                "mean_reward": manifest.mean_reward,
                "final_metrics": dict(final_metrics(stage_run.folder)),
                **({ADAPTER_BASE: kept_adapter.base} if kept_adapter else {}),
            },
        )
        span.attributes[names.RL_MODEL_VERSION] = version.reference
    return version


def _pass_gate(stage_run: StageRun, store: Store, base: BaseModelFacts, model: Path, step: int) -> GateResult | None:
    """Measure the model of a stage that another one follows; None for other stages.

    Raises:
        JobError: It is worse than the version that the stage started from, or could not be measured.
    """
    if not stage_run.stage.has_gate:
        return None
    with stage_run.trace.span("rl.gate"):
        gate = run_gate(
            stage_run.folder, stage_run.spec.recipe, before=base.path, after=model, device=stage_run.spec.run.device
        )
        metrics = {f"gate/{gate.measure}": gate.got, f"gate/{gate.measure}/expected": gate.expected}
        writer = MetricsWriter(store, stage_run.training_id)
        writer.add([StepMetrics(step, metrics)])
        _log(f"gate after {stage_run.stage.title}: {gate}")
        if not gate.passed:
            raise JobError(
                f"Job {stage_run.job.id}: the gate after {stage_run.stage.title} ended it: {gate}. "
                f"The last good version is {base.reference}.",
                next_step="Look at the stage's curves; submit a new job with a smaller learning rate, fewer steps or "
                "more data for this stage.",
            )
    return gate


def _dataset(stage_run: StageRun, store: Store) -> tuple[Manifest, BaseModelFacts]:
    job = stage_run.job
    synchronise = partial(
        synchronise_dataset,
        stage_run.data_dir.path,
        stage_run.training_id,
        stage_run.folder,
        before_change=stage_run.check_lease,
    )
    synchronise()
    manifest = load_manifest(stage_run.folder)
    if manifest is not None and manifest.forgotten_rows:
        raise JobError(
            f"Job {job.id}: {manifest.forgotten_episodes} episodes of its dataset were erased (spanloop forget).",
            next_step="Submit a new job with the same spec; it exports its dataset again.",
        )
    version = stage_run.registry.get(manifest.base if manifest else stage_run.spec.base)
    weights = full_weights(stage_run.registry, version, stage_run.folder / _MERGED_BASE)
    base = with_lineage(read_base_model(version.reference, weights), stage_run.registry)
    if manifest is None:
        _log(f"exporting the dataset for {base.reference}")
        with stage_run.trace.span("rl.export") as span:
            manifest = export_dataset(
                store,
                stage_run.spec.changed(policy_version=stage_run.registry.exact(stage_run.spec.episodes.policy_version)),
                base,
                tokenizer_of=stage_run.registry.tokenizer_fingerprint,
                job_id=stage_run.training_id,
                folder=stage_run.folder,
                held_out_share=stage_run.stage.held_out_share,
                consumed=_consumed(stage_run),
            )
            span.attributes[names.RL_ROWS] = manifest.rows.accepted
        synchronise()
    _log(f"dataset {manifest.data_sha256[:12]}: {manifest.summary}")
    return manifest, base


def _consumed(stage_run: StageRun) -> tuple[Training, ...]:
    """Return the earlier trainings of the job's schedule; none for a job without one."""
    job_ids = JobApi(stage_run.data_dir).jobs_of_schedule(stage_run.job.schedule_id)
    return trainings_of_schedule(stage_run.registry, job_ids - {stage_run.job.id})


def _train(stage_run: StageRun, manifest: Manifest, base: BaseModelFacts, watch: TrainingWatch) -> Checkpoint:
    spec = stage_run.spec
    plan_path = stage_run.folder / "plan.json"
    stage_run.check_lease()
    claim(stage_run.folder / "checkpoints", stage_run.token)
    discard_old(stage_run.folder / "checkpoints", keep=spec.run.max_ckpt_to_keep)
    with ray_folder(plan_path) as ray_temp_dir:
        plan = make_plan(
            spec,
            base,
            manifest,
            folder=stage_run.folder,
            attempt=stage_run.job.attempt,
            ray_folder=ray_temp_dir,
            lease_token=stage_run.token,
        )
        if plan.steps < spec.optimiser.steps:
            limits = spec.optimiser
            _log(f"max_passes of {limits.max_passes:g} gives it {plan.steps} steps; the setting allows {limits.steps}")
        _log(
            f"training {plan.steps} steps of {plan.batch_size}"
            + (f", going on from {plan.resume_from.name}" if plan.resume_from else "")
        )
        if stage_run.job.spec.run.pause_serving:
            stage_run.pause.begin()
        with (
            stage_run.trace.span("rl.train") as span,
            stage_run.checkpoint_objects.sent_beside(),
            verl_process(plan, plan_path, token=stage_run.token) as run,
        ):
            ending = _follow(stage_run, run, watch)
            if ending is not None:
                span.attributes[names.RL_ENDED_EARLY] = ending.cause
    return finished_checkpoint(plan, stage_run.folder, ending)


def _follow(stage_run: StageRun, run: VerlProcess, watch: TrainingWatch) -> EarlyStop | None:
    """Store each step's metrics and progress until verl ends, or until there is a reason to end it, which is returned.

    Raises:
        JobError: verl failed.
        JobLeaseLostError: Another runner has the job.
    """
    tail = MetricsTail(run.plan.metrics_path)
    status = None
    while status is None:
        time.sleep(_POLL_S)
        run.memory.look()
        status = run.exit_status()
        steps, ending = watch.look(tail)
        if steps:
            _report_progress(stage_run, steps[-1].step, run.plan.steps)
        is_last = bool(steps) and steps[-1].step >= run.plan.steps
        if ending is not None and not (ending.takes_newest and is_last):
            return ending
    ending = read_early_stop(run.plan.failure_path)
    if status != 0 and ending is None:
        raise failure_of(run, is_paused=stage_run.job.spec.run.pause_serving)
    return ending


def _report_progress(stage_run: StageRun, step: int, steps: int) -> None:
    """Store the steps of all stages; one that has not begun counts with its setting."""
    later = stages_of(stage_run.job.spec)[stage_run.stage.number :]
    total = stage_run.steps_before + steps + sum(stage.spec.optimiser.steps for stage in later)
    report_progress(stage_run.data_dir, stage_run.job.id, stage_run.token, stage_run.steps_before + step, total)


def _end_reason(stage_run: StageRun, steps: int) -> str:
    ended = read_ended(stage_run.folder)
    if ended is not None:
        return ended.reason
    limits = stage_run.spec.optimiser
    if steps >= limits.steps:
        return ""
    return f"max_passes of {limits.max_passes:g} gave it {steps} steps; the setting allows {limits.steps}"


def _clear_scratch(folder: Path) -> None:
    """Checkpoints and the assembled folder are several times the model's size; the registry has its own copy."""
    for name in ("checkpoints", "model", _MERGED_BASE):
        shutil.rmtree(folder / name, ignore_errors=True)


def _log(text: str) -> None:
    _logger.info("%s", text)


def _configure_log(data_dir: Path, job_id: str) -> None:
    """Write this process's lines to the job's log, which is its output; not those of libraries that only inform."""
    configure_logging("job", data_dir, stream=sys.stdout, text_layout="run_job: %(message)s")
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("spanloop").setLevel(logging.INFO)
    add_log_fields(job_id=job_id)


def _become_evaluation(data_dir: Path, job_id: str) -> None:
    """Replace this process by that of an evaluation, if the job is one; its lease, session and log stay the same."""
    job = QueueApi(DataDir(data_dir).open(), parse_any_spec).get(job_id)
    if isinstance(job.spec, EvaluationSpec):
        arguments = ["--data-dir", str(data_dir), "--job", job_id]
        os.execv(sys.executable, [sys.executable, "-m", _EVALUATION, *arguments])  # noqa: S606 - this interpreter


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, run the job, print a failure's reason; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.run.run_job", description="Run one leased job.")
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--job", required=True)
    arguments = parser.parse_args(argv)
    exit_on_sigterm()  # so that verl and its Ray cluster are stopped
    try:
        _configure_log(arguments.data_dir, arguments.job)
        _become_evaluation(arguments.data_dir, arguments.job)
        run_job(DataDir(arguments.data_dir).open(), arguments.job)
    except SpanloopError as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201
        return EX_TEMPFAIL if is_transient(error) else error.exit_code
    except OSError as error:
        if not is_transient(error):
            raise
        print(f"The disk is full: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return EX_TEMPFAIL
    return 0


if __name__ == "__main__":
    sys.exit(main())

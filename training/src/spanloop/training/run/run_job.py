"""Run one leased job: ``python -m spanloop.training.run.run_job --data-dir D --job ID``.

The scheduler starts it with the lease's fencing token in the environment. Every attempt has the same steps and skips
those that an earlier attempt completed: for each stage export the dataset, train from the newest complete checkpoint,
pass the gate and register the version; then deploy or evaluate the last version. Only the scheduler writes the job's
state, except that it is evaluated; a non-zero exit status is a failure, and its reason is the error printed last.
The status EX_TEMPFAIL says that the cause passes.
"""

import argparse
import logging
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, NoReturn

from spanloop.foundation.errors import JobError, SpanloopError
from spanloop.foundation.paths import DataDir, write_atomically
from spanloop.foundation.telemetry.logs import add_log_fields, configure_logging
from spanloop.semconv import attributes as names
from spanloop.store import Store, connect

from ..dataset.export import export_dataset
from ..dataset.manifest import Manifest, load_manifest
from ..jobs.paths import ControlPaths
from ..jobs.progress import job_token, report_progress
from ..jobs.training_ids import training_id
from ..models.adapter_versions import adapter_to_keep, full_weights
from ..models.base_model import BaseModelFacts, Training, read_base_model
from ..models.checkpoint_fence import claim
from ..models.checkpoints import Checkpoint, assemble_model, discard_old, latest_checkpoint
from ..models.lineage import last_step, trainings_of_schedule, with_lineage
from ..models.registry import ADAPTER_BASE, ModelVersion, Registry
from ..promotion.serving_pause import ServingPause
from ..spec.job_spec import JobSpec
from ..spec.stages import Stage, stages_of
from ..spec.stored_spec import Job
from ..verl_plugin.drift import ENDED_NAME, EndedEarly, read_ended
from ..verl_plugin.early_stopping import EarlyStop, read_early_stop
from ..verl_plugin.override_check import check_verl
from ..verl_plugin.train_plan import TrainPlan
from .deployment_of_job import TrainedJob, deploy_as_asked
from .gate import run_gate
from .gate_result import GateResult
from .job_api import JobApi
from .monitor.job_trace import JobTrace, trace_id_of, traced_job
from .monitor.metrics import MetricsTail, MetricsWriter, StepMetrics, logged_steps
from .monitor.watch import TrainingWatch
from .planning import make_plan, planned_steps
from .transient import EX_TEMPFAIL, is_transient
from .verl_process import VerlProcess, failure_of, ray_folder, verl_process

_logger: Final = logging.getLogger("spanloop.training.run.run_job")
_POLL_S: Final = 0.2
_MERGED_BASE: Final = "base"
SPEC_NAME: Final = "spec.json"
"""File of a job's folder with the value of every setting."""


class Attempt(NamedTuple):
    """One run of one job."""

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
            attempt = Attempt(data_dir, job, token, started, steps_before, stage_folder, registry, pause, trace)
            versions.append(registry.of_training(attempt.training_id) or _run_stage(attempt))
            _clear_scratch(stage_folder)
        deploy_as_asked(TrainedJob(data_dir, job, token, versions[-1]), trace, pause, _log)
    _log(f"done: {versions[-1].reference}")
    return versions[-1]


def _run_stage(attempt: Attempt) -> ModelVersion:
    stage = attempt.stage
    if stage.total > 1:
        _log(f"{stage.title} from {stage.spec.base}")
    attempt.folder.mkdir(parents=True, exist_ok=True)
    return _train_and_register(attempt)


def _train_and_register(attempt: Attempt) -> ModelVersion:
    with connect(attempt.data_dir) as store:
        manifest, base = _dataset(attempt, store)
        is_last = attempt.stage.number == attempt.stage.total
        # a later stage and the gate load full weights
        kept_adapter = adapter_to_keep(attempt.spec, attempt.registry.get(base.reference)) if is_last else None
        watch = TrainingWatch(store, attempt.training_id, attempt.spec, attempt.folder, attempt.trace)
        ended = read_ended(attempt.folder)
        limit = ended.step if ended else None
        checkpoint = latest_checkpoint(attempt.folder / "checkpoints", at_most=limit)
        steps, _ = planned_steps(attempt.spec, manifest)
        if ended is None and (checkpoint is None or checkpoint.step < steps):
            checkpoint = _train(attempt, manifest, base, watch)
        watch.flush()
        if checkpoint is None:
            raise JobError(
                f"Job {attempt.job.id}: its checkpoint is gone.", next_step="Submit a new job with its spec."
            )
        model = assemble_model(checkpoint, base.path, attempt.folder / "model", kept_adapter=kept_adapter)
        gate = _pass_gate(attempt, store, base, model, checkpoint.step)
    _log(f"registering the weights of step {checkpoint.step}")
    with attempt.trace.span("rl.register") as span:
        version = attempt.registry.add(
            attempt.job.spec.result_name,
            model,
            parent=base.reference,
            job_id=attempt.job.id,
            stage=attempt.stage.number,
            token=attempt.token,
            metadata={
                "kind": attempt.spec.kind,
                "stage": attempt.stage.number,
                "steps": checkpoint.step,
                "gate": str(gate) if gate else "",
                "ended_early": _end_reason(attempt, steps),
                "dataset_sha256": manifest.data_sha256,
                "episodes": manifest.episodes.accepted,
                "mean_reward": manifest.mean_reward,
                "final_metrics": dict(_final_metrics(attempt.folder)),
                **({ADAPTER_BASE: kept_adapter.base} if kept_adapter else {}),
            },
        )
        span.attributes[names.RL_MODEL_VERSION] = version.reference
    return version


def _pass_gate(attempt: Attempt, store: Store, base: BaseModelFacts, model: Path, step: int) -> GateResult | None:
    """Measure the model of a stage that another one follows; None for other stages.

    Raises:
        JobError: It is worse than the version that the stage started from, or could not be measured.
    """
    if not attempt.stage.has_gate:
        return None
    with attempt.trace.span("rl.gate"):
        gate = run_gate(
            attempt.folder, attempt.spec.recipe, before=base.path, after=model, device=attempt.spec.run.device
        )
        metrics = {f"gate/{gate.measure}": gate.got, f"gate/{gate.measure}/expected": gate.expected}
        writer = MetricsWriter(store, attempt.training_id)
        writer.add([StepMetrics(step, metrics)])
        _log(f"gate after {attempt.stage.title}: {gate}")
        if not gate.passed:
            raise JobError(
                f"Job {attempt.job.id}: the gate after {attempt.stage.title} ended it: {gate}. The last good version "
                f"is {base.reference}.",
                next_step="Look at the stage's curves; submit a new job with a smaller learning rate, fewer steps or "
                "more data for this stage.",
            )
    return gate


def _dataset(attempt: Attempt, store: Store) -> tuple[Manifest, BaseModelFacts]:
    job = attempt.job
    manifest = load_manifest(attempt.folder)
    if manifest is not None and manifest.forgotten_rows:
        raise JobError(
            f"Job {job.id}: {manifest.forgotten_episodes} episodes of its dataset were erased (spanloop forget).",
            next_step="Submit a new job with the same spec; it exports its dataset again.",
        )
    version = attempt.registry.get(manifest.base if manifest else attempt.spec.base)
    weights = full_weights(attempt.registry, version, attempt.folder / _MERGED_BASE)
    base = with_lineage(read_base_model(version.reference, weights), attempt.registry)
    if manifest is None:
        _log(f"exporting the dataset for {base.reference}")
        with attempt.trace.span("rl.export") as span:
            manifest = export_dataset(
                store,
                attempt.spec.changed(policy_version=attempt.registry.exact(attempt.spec.episodes.policy_version)),
                base,
                tokenizer_of=attempt.registry.tokenizer_fingerprint,
                job_id=attempt.training_id,
                folder=attempt.folder,
                held_out_share=attempt.stage.held_out_share,
                consumed=_consumed(attempt),
            )
            span.attributes[names.RL_ROWS] = manifest.rows.accepted
    _log(f"dataset {manifest.data_sha256[:12]}: {manifest.summary}")
    return manifest, base


def _consumed(attempt: Attempt) -> tuple[Training, ...]:
    """Return the earlier trainings of the job's schedule; none for a job without one."""
    job_ids = JobApi(attempt.data_dir).jobs_of_schedule(attempt.job.schedule_id)
    return trainings_of_schedule(attempt.registry, job_ids - {attempt.job.id})


def _train(attempt: Attempt, manifest: Manifest, base: BaseModelFacts, watch: TrainingWatch) -> Checkpoint:
    spec = attempt.spec
    plan_path = attempt.folder / "plan.json"
    attempt.registry.check_lease(attempt.job.id, attempt.token)
    claim(attempt.folder / "checkpoints", attempt.token)
    discard_old(attempt.folder / "checkpoints", keep=spec.run.max_ckpt_to_keep)
    with ray_folder(plan_path) as ray_temp_dir:
        plan = make_plan(
            spec,
            base,
            manifest,
            folder=attempt.folder,
            attempt=attempt.job.attempt,
            ray_folder=ray_temp_dir,
            lease_token=attempt.token,
        )
        if plan.steps < spec.optimiser.steps:
            limits = spec.optimiser
            _log(f"max_passes of {limits.max_passes:g} ends the training at step {plan.steps} of {limits.steps}")
        _log(
            f"training {plan.steps} steps of {plan.batch_size}"
            + (f", going on from {plan.resume_from.name}" if plan.resume_from else "")
        )
        if attempt.job.spec.run.pause_serving:
            attempt.pause.begin()
        with attempt.trace.span("rl.train") as span, verl_process(plan, plan_path, token=attempt.token) as run:
            ending = _follow(attempt, run, watch)
            if ending is not None:
                span.attributes[names.RL_ENDED_EARLY] = ending.cause
    return _finished(attempt, plan, ending)


def _follow(attempt: Attempt, run: VerlProcess, watch: TrainingWatch) -> EarlyStop | None:
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
            _report_progress(attempt, steps[-1].step, run.plan.steps)
        is_last = bool(steps) and steps[-1].step >= run.plan.steps
        if ending is not None and not (ending.takes_newest and is_last):
            return ending
    ending = read_early_stop(run.plan.failure_path)
    if status != 0 and ending is None:
        raise failure_of(run, is_paused=attempt.job.spec.run.pause_serving)
    return ending


def _report_progress(attempt: Attempt, step: int, steps: int) -> None:
    """Store the steps of all stages; one that has not begun counts with its setting."""
    later = stages_of(attempt.job.spec)[attempt.stage.number :]
    total = attempt.steps_before + steps + sum(stage.spec.optimiser.steps for stage in later)
    report_progress(attempt.data_dir, attempt.job.id, attempt.token, attempt.steps_before + step, total)


def _end_reason(attempt: Attempt, steps: int) -> str:
    ended = read_ended(attempt.folder)
    if ended is not None:
        return ended.reason
    is_cut = steps < attempt.spec.optimiser.steps
    return f"max_passes ended it at step {steps} of {attempt.spec.optimiser.steps}" if is_cut else ""


def _last_good(attempt: Attempt, plan: TrainPlan, ending: EarlyStop) -> Checkpoint:
    """Return the last good checkpoint of a training that was ended.

    Raises:
        JobError: There is none.
    """
    checkpoint = latest_checkpoint(plan.checkpoint_dir, at_most=ending.last_step)
    if checkpoint is None and ending.takes_newest:
        checkpoint = latest_checkpoint(plan.checkpoint_dir)
    if checkpoint is None:
        raise JobError(
            f"Job {plan.job_id} was ended ({ending.cause}) and has no checkpoint from before: {ending.reason}",
            next_step=ending.next_step,
        )
    ended = EndedEarly(
        step=checkpoint.step, reason=f"{ending.cause} ended it at step {checkpoint.step}: {ending.reason}"
    )
    write_atomically(attempt.folder / ENDED_NAME, ended.model_dump_json(indent=1))
    _log(ended.reason)
    return checkpoint


def _finished(attempt: Attempt, plan: TrainPlan, ending: EarlyStop | None) -> Checkpoint:
    if ending is not None:
        return _last_good(attempt, plan, ending)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    if checkpoint is None or checkpoint.step < plan.steps:
        reached = checkpoint.step if checkpoint else 0
        raise JobError(
            f"Job {plan.job_id}: verl ended without an error after step {reached}, expected {plan.steps}.",
            next_step=f"spanloop jobs log {plan.job_id}",
        )
    return checkpoint


def _final_metrics(folder: Path) -> list[tuple[str, float]]:
    last = max(reversed(logged_steps(folder)), key=lambda step: step.step)
    return [(name, value) for name, value in sorted(last.values.items()) if value == value]  # noqa: PLR0124 - NaN


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


def _exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    """Exit normally on SIGTERM, so that verl and its Ray cluster are stopped."""
    sys.exit(128 + number)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, run the job, print a failure's reason; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.run.run_job", description="Run one leased job.")
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--job", required=True)
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        _configure_log(arguments.data_dir, arguments.job)
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

"""Run one leased evaluation: ``python -m spanloop.training.evaluations.run_evaluation --data-dir D --job ID``.

Its versions attempt the tasks one after another through the gateway, which serves afterwards what it served before. An
evaluation that was killed continues its attempts; attempts that were made for a promotion or a loop with the same
settings are used again.
"""

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.telemetry.logs import add_log_fields, configure_logging
from spanloop.store import connect
from spanloop.training.jobs.leases import JobLease
from spanloop.training.jobs.processes.stop_signal import exit_on_sigterm
from spanloop.training.jobs.progress import job_token, report_progress
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.evaluation_run import EvaluationRun
from spanloop.training.promotion.job_promotion import ServedMeanwhile, measure
from spanloop.training.promotion.promote import Actions
from spanloop.training.run.transient import EX_TEMPFAIL, is_transient

from .evaluation_api import EvaluationApi
from .sources import enter_folder, read_source

_logger: Final = logging.getLogger("spanloop.training.evaluations.run_evaluation")


def run_evaluation(data_dir: DataDir, job_id: str) -> None:
    """Let the versions of a job attempt the tasks, and evaluate each.

    Raises:
        JobLeaseLostError: Another runner has the job.
        SpanloopError: The file, the tasks, the agent or the grader cannot be used, or a service is away.
    """
    lease = JobLease(job_id, job_token())
    spec = EvaluationApi(data_dir).get(job_id).spec
    source, registry = read_source(data_dir, spec), Registry(data_dir)
    actions = Actions(data_dir, lease, on_progress=_log)
    versions = [registry.get(reference) for reference in spec.versions]
    with connect(data_dir) as store, ServedMeanwhile(data_dir, versions[0].name, actions):
        for number, version in enumerate(versions):
            measure(
                data_dir,
                store,
                EvaluationRun.of(version, source.settings),
                actions,
                reward_floor=source.rule.reward_range[0],
                on_attempts=_reporting(data_dir, lease, number, len(versions)),
            )
    _log(f"evaluated: {', '.join(spec.versions)}")


def _reporting(data_dir: DataDir, lease: JobLease, number: int, versions: int) -> Callable[[int, int], None]:
    """Return a function that reports the attempts of one version as part of those of all."""

    def report(done: int, total: int) -> None:
        report_progress(data_dir, lease.job_id, lease.token, number * total + done, versions * total)

    return report


def _log(text: str) -> None:
    _logger.info("%s", text)


def _configure_log(data_dir: Path, job_id: str) -> None:
    configure_logging("job", data_dir, stream=sys.stdout, text_layout="evaluation: %(message)s")
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("spanloop").setLevel(logging.INFO)
    add_log_fields(job_id=job_id)


def main(argv: list[str] | None = None) -> int:
    """Run the evaluation, print a failure's reason; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.evaluations.run_evaluation", description=__doc__)
    parser.add_argument("--data-dir", required=True, type=Path)
    parser.add_argument("--job", required=True)
    arguments = parser.parse_args(argv)
    exit_on_sigterm()  # so that the agent's processes are ended and the gateway serves what it did before
    data_dir = DataDir(arguments.data_dir).open()
    try:
        _configure_log(data_dir.path, arguments.job)
        enter_folder(EvaluationApi(data_dir).get(arguments.job).spec)
        run_evaluation(data_dir, arguments.job)
    except SpanloopError as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201
        return EX_TEMPFAIL if is_transient(error) else error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

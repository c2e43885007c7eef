"""Check what a job names by reference before it is queued: its selectors, and what evaluates its version.

Invariant: a job whose selector, reader or grader cannot be found, or has an option that cannot be used, is not queued.
"""

from pathlib import Path

from spanloop.foundation.settings import Evaluation, load_configuration
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.spec.stages import stages_of


def check_extensions(spec: JobSpec, data_dir: Path) -> None:
    """Find the extensions that a job and its evaluation name.

    Args:
        spec: The job.
        data_dir: Holds ``spanloop.toml``, whose ``[evaluation]`` counts for a job that deploys.

    Raises:
        JobError: A selector cannot be used.
        ConfigurationError: ``spanloop.toml`` is invalid, or its reader or grader cannot be used.
    """
    selectors = {stage.spec.episodes.selector for stage in stages_of(spec)} - {""}
    if selectors:
        from spanloop.training.dataset.selector import load_selector  # noqa: PLC0415 - polars, and few jobs need it

        for selector in sorted(selectors):
            load_selector(selector)
    evaluation = load_configuration(data_dir).evaluation if spec.run.deploy else Evaluation()
    if evaluation.tasks:
        _check_evaluation(evaluation, data_dir)


def _check_evaluation(evaluation: Evaluation, data_dir: Path) -> None:
    from spanloop.evaluation.graders import GraderContext, load_grader  # noqa: PLC0415 - as above
    from spanloop.evaluation.tasks.readers import find_reader  # noqa: PLC0415

    find_reader(evaluation.tasks, evaluation.reader, evaluation.reader_options)
    if evaluation.grader:
        load_grader(evaluation.grader, evaluation.grader_options, GraderContext(data_dir))

"""The files of this data directory that say how a model's agent attempts tasks.

Invariant: an agent's command comes out of a file of the host, never out of a page: ``[evaluation]`` of
``spanloop.toml``, or of the ``app.toml`` of a loop that has a schedule.
"""

import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Evaluation, Promotion, load_configuration
from spanloop.training.loop.app_file import read_app
from spanloop.training.run.job_api import JobApi
from spanloop.training.spec.stored_spec import EvaluationSpec

CONFIGURATION: Final = "spanloop.toml"
NOTHING_KNOWN: Final = "No file says how the agent attempts tasks."
HOW_TO_SAY: Final = (
    "Write [evaluation] with tasks and agent into spanloop.toml of the data directory, or schedule the loop of an "
    "app.toml."
)
_STORED_TRACES: Final = "stored-traces:"
_OF_THE_FILE: Final = {"reader", "limit", "split", "splits", "type_weights", "pass_rate_of", "id_field"}
"""Settings of the tasks of the file, which do not hold for those of a data set."""


class EvaluationSource(NamedTuple):
    """A file with ``[evaluation]``."""

    file: str
    """Absolute path of an ``app.toml``; empty is ``spanloop.toml``."""
    settings: Evaluation
    rule: Promotion

    @property
    def title(self) -> str:
        """The file's name, as a person knows it."""
        return self.file or CONFIGURATION


def evaluation_files(data_dir: DataDir, model: str) -> tuple[str, ...]:
    """Return the files that say how a model's agent attempts tasks, the loops' first; empty is ``spanloop.toml``.

    Raises:
        ConfigurationError: ``spanloop.toml`` is invalid.
    """
    loops = [each.settings.loop for each in JobApi(data_dir).schedules() if each.settings.loop is not None]
    files = dict.fromkeys(loop.path for loop in loops if loop.model == model)
    configured = [""] if load_configuration(data_dir.path).evaluation.tasks else []
    return (*files, *configured)


def read_source(data_dir: DataDir, spec: EvaluationSpec) -> EvaluationSource:
    """Return what the file of an evaluation says, with the tasks of its data set where it has one.

    Raises:
        ConfigurationError: The file cannot be read, is of another model, or says nothing of an agent.
    """
    configuration = load_configuration(data_dir.path)
    settings, rule = configuration.evaluation, configuration.promotion
    if spec.file:
        app = read_app(Path(spec.file))
        name = spec.base.partition("@")[0]
        if app.model.name != name:
            raise ConfigurationError(
                f"{spec.file}: [model] is {app.model.name!r}; expected {name!r}, which is evaluated.",
                next_step="Choose the file of this model's loop.",
            )
        settings, rule = app.evaluation, app.promotion or rule
    if not settings.agent:
        raise ConfigurationError(NOTHING_KNOWN, next_step=HOW_TO_SAY)
    if spec.data_set:
        others = settings.model_dump(exclude=_OF_THE_FILE)
        tasks = {"tasks": _STORED_TRACES, "reader_options": {"data_set": spec.data_set}}
        settings = Evaluation.model_validate(others | tasks)
    return EvaluationSource(spec.file, settings, rule)


def enter_folder(spec: EvaluationSpec) -> None:
    """Change to the folder that relative paths and modules of the file start at.

    Those of ``spanloop.toml`` start at the working directory of the process that runs jobs.
    """
    if spec.file:
        folder = Path(spec.file).parent
        os.chdir(folder)
        sys.path.insert(0, str(folder))

"""Run an example's agent on its task file against a scripted model, and convert the spans that a collector received."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl
from framework_matrix.recording import collecting, drain, read_store

from spanloop.semconv.environment import DATA_DIR_ENV, EXIT_TIMEOUT_ENV
from spanloop.store.client import Address

from ..instrumentation.support import BIN, EXAMPLES, Attributes, Reply, clean_environment, modelling


class Attempted(NamedTuple):
    """What a run of an agent said, asked and left in the store."""

    stdout: str
    stderr: str
    code: int
    requests: list[Attributes]
    """The requests to the model, in order."""
    transitions: pl.DataFrame
    spans: pl.DataFrame


def run_example(
    name: str, tasks: Path, script: Sequence[Reply], address: Address, *arguments: str, model_name: str = "tiny"
) -> Attempted:
    """Run ``examples/NAME/agent.py`` on ``tasks`` under ``opentelemetry-instrument``.

    Args:
        name: The example.
        tasks: Its task file; its folder becomes the data directory.
        script: The model's answers.
        address: An empty store, which gets the spans.
        *arguments: Further arguments of the agent.
        model_name: What the agent calls the model.
    """
    command = [str(BIN / "opentelemetry-instrument"), sys.executable, str(EXAMPLES / name / "agent.py"), str(tasks)]
    data_dir = tasks.parent
    with modelling() as model, collecting(address, address.database, data_dir) as database:
        model.script = script
        environment = {DATA_DIR_ENV: str(data_dir), "OPENAI_BASE_URL": model.url, EXIT_TIMEOUT_ENV: "60"}
        done = subprocess.run(
            [*command, "--model", model_name, *arguments],
            env=clean_environment() | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        drain(data_dir)
        recorded = read_store(database, {})
    return Attempted(done.stdout, done.stderr, done.returncode, model.requests, recorded.transitions, recorded.spans)

"""Test that the control state imports nothing heavy."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "verl", "ray", "transformers", "streamlit"}


@pytest.mark.parametrize(
    "module",
    [
        "run.job_api",
        "models.registry",
        "promotion.deploy",
        "run.scheduler",
        "spec.job_spec",
        "jobs.schedules.stored_schedules",
    ],
)
def test_control_state_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, spanloop.training.{module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert set(loaded) & HEAVY == set()
    if module != "run.scheduler":
        assert set(loaded) & {"polars", "clickhouse_connect"} == set()

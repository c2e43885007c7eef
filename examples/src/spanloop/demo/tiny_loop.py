"""The tiny demo: the whole loop in two minutes, with a model that it builds first.

Build the model → serve it → let an agent use it under ``opentelemetry-instrument`` → convert the spans → train with
verl → serve the new version → let the agent use it. Then ``tiny_checks`` checks the store. It claims no learning.

It runs on a spanloop that it starts, or on one that runs already. There the services do what the demo does otherwise:
the pipeline converts. The model has a name of its own, by which the demo finds its rows among those of others.
"""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.markup import escape

from spanloop.cli.console import out
from spanloop.evaluation.runner.served_model import gateway_key
from spanloop.foundation.errors import ServiceError
from spanloop.runtime.job_progress import await_job
from spanloop.runtime.services import Ports
from spanloop.runtime.stack import running_stack
from spanloop.semconv.environment import DATA_DIR_ENV

from .running_services import await_conversion, check_services
from .shop import ShopFiles, write_shop
from .stages import StageDisplay
from .tiny_checks import CheckResult, DemoRun, check_run, read_report

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir
    from spanloop.store import Store

MODEL: Final = "tiny"
_ATTEMPTS: Final = 4
_TRAINING_STEPS: Final = 2
_AGENT_TIMEOUT_S: Final = 180.0
_STORED_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2
_OTEL_PREFIX: Final = "OTEL_"

Conversion: TypeAlias = Callable[["DataDir", StageDisplay, str, list[Path]], None]
"""Brings the store to where the episodes of these reports, by the agent that requested this model, are converted."""


def run_tiny(data_dir: "DataDir") -> bool:
    """Run the loop on services that it starts in ``data_dir``, and print the checks; True when all hold."""
    stages = StageDisplay()
    # vLLM would compile its sampler for 15 CPU-seconds, which gains nothing over a vocabulary of 400 tokens.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    with ExitStack() as services:
        with stages.stage("services up: ClickHouse, collector, gateway, scheduler"):
            services.enter_context(running_stack(data_dir, Ports.free(), stages.note, dashboard=False, pipeline=False))
        return _run(data_dir, stages, MODEL, _convert)


def run_tiny_on_services(data_dir: "DataDir", ray_address: str = "") -> bool:
    """Run the loop on services that run already, and print the checks; True when all hold.

    Args:
        data_dir: Holds the demo's files. Settings name the services, or they run on this directory.
        ray_address: The Ray cluster that trains; empty: a cluster of the job's own.

    Raises:
        NotRunningError: There is no collector or no gateway.
        SpanloopError: Another service does not answer.
    """
    stages = StageDisplay()
    with stages.stage("services answer: ClickHouse, collector, gateway"):
        check_services(data_dir)
    return _run(data_dir, stages, f"{MODEL}-{secrets.token_hex(4)}", await_conversion, ray_address)


def _run(data_dir: "DataDir", stages: StageDisplay, model: str, convert: Conversion, ray_address: str = "") -> bool:
    demo_run = _loop(data_dir, stages, model, convert, ray_address)
    with stages.stage("the store is checked"):
        results = check_run(data_dir, demo_run)
    return _print_results(results, stages)


def _loop(data_dir: "DataDir", stages: StageDisplay, model: str, convert: Conversion, ray_address: str) -> DemoRun:
    folder = data_dir.path / "demo"
    files = write_shop(folder)
    base = _make_model(data_dir, stages, model)
    _serve(data_dir, stages, base)
    before = folder / "before.json"
    with stages.stage(f"the agent works under opentelemetry-instrument, {_ATTEMPTS} attempts at each task"):
        stages.note(_run_agent(data_dir, files, before, model=model, attempts=_ATTEMPTS))
    convert(data_dir, stages, model, [before])
    job_id, version = _train(data_dir, stages, base, ray_address)
    after = folder / "after.json"
    with stages.stage(f"the agent works with {version}"):
        stages.note(_run_agent(data_dir, files, after, model=model, attempts=1))
    convert(data_dir, stages, model, [before, after])
    return DemoRun(model, base, version, job_id, _TRAINING_STEPS, before, after)


def _make_model(data_dir: "DataDir", stages: StageDisplay, name: str) -> str:
    from spanloop.training.models.registry import Registry

    with stages.stage("a model, its tokenizer and its chat template are built"):
        from transformers.utils.logging import disable_progress_bar

        from spanloop.demo.tiny_model import build_tiny_model

        disable_progress_bar()  # the model loads in milliseconds
        folder = data_dir.path / "demo" / "model"
        stages.note(f"{build_tiny_model(folder):,} parameters")
        version = Registry(data_dir).add(name, folder)
    return f"{version.name}@{version.version}"


def _serve(data_dir: "DataDir", stages: StageDisplay, model: str) -> None:
    from spanloop.training.promotion.deploy import deploy

    with stages.stage(f"vLLM serves {model} behind the gateway"):
        deploy(data_dir, model)


def _run_agent(data_dir: "DataDir", files: ShopFiles, report: Path, *, model: str, attempts: int) -> str:
    gateway = data_dir.find("gateway")
    if gateway is None:
        raise ServiceError("The gateway has stopped.", next_step=f"Read {data_dir.logs / 'gateway.log'}")
    # The agent must be traced without any OpenTelemetry setting.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OTEL_PREFIX)}
    environment |= {
        DATA_DIR_ENV: str(data_dir.path),
        "OPENAI_BASE_URL": f"{gateway.url}/v1",
        "OPENAI_API_KEY": gateway_key(data_dir, gateway),
    }
    instrument = Path(sys.executable).with_name("opentelemetry-instrument")
    script = Path(__file__).with_name("shop_agent.py")
    command = [str(instrument), sys.executable, str(script), str(files.tasks), str(files.database), str(report)]
    command += ["--model", model, "--attempts", str(attempts)]
    completed = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_AGENT_TIMEOUT_S, check=False
    )
    if completed.returncode:
        raise ServiceError(f"The agent ended with {completed.returncode}:\n{completed.stderr.strip()[-2000:]}")
    return completed.stdout.strip()


def _convert(data_dir: "DataDir", stages: StageDisplay, _model: str, reports: list[Path]) -> None:
    from spanloop.pipeline import run
    from spanloop.store import connect

    with stages.stage("spans become transitions"), connect(data_dir) as store:
        wait_until_stored(store, reports)
        report = run(store)
        stages.note(f"{report.spans} spans, {report.transitions} transitions, {report.trajectories} token rows")


def wait_until_stored(store: "Store", report_paths: list[Path]) -> None:
    """Wait until the store holds a span and a capture for each reported call, and a root and a score for each attempt.

    An acknowledged span can be queried about a second later. After 30 s it returns without an error: ``tiny_checks``
    then reports what is missing.
    """
    attempts = [attempt for path in report_paths for attempt in read_report(path)]
    calls = sum(len(attempt.response_ids) for attempt in attempts)
    deadline_s = time.monotonic() + _STORED_TIMEOUT_S
    while time.monotonic() < deadline_s:
        spans, roots, captures, scores = store.query("demo_arrived").row(0)
        if min(spans, captures) >= calls and min(roots, scores) >= len(attempts):
            return
        time.sleep(_POLL_S)


def _train(data_dir: "DataDir", stages: StageDisplay, base: str, ray_address: str) -> tuple[str, str]:
    from spanloop.training.run.job_api import JobApi, JobSpec

    spec = JobSpec.of(
        kind="dr_grpo",
        base=base,
        policy_version=base,
        steps=_TRAINING_STEPS,
        batch_groups=4,
        group_size=_ATTEMPTS,
        learning_rate=3e-4,
        # few groups, and a rate at which a model of 100,000 weights learns within seconds
        max_passes=1000,
        kl_budget=None,
        max_prompt_tokens=512,
        max_response_tokens=512,
        deploy_always=True,
        ray_address=ray_address,
    )
    with stages.stage("verl trains on them through Ray, and the new weights are served"):
        api = JobApi(data_dir)
        job = await_job(api, data_dir, api.submit(spec).id, lambda _: None)
    return job.id, str(job.model_version)


def _print_results(results: list[CheckResult], stages: StageDisplay) -> bool:
    for result in results:
        mark = "[green]✓[/green]" if result.ok else "[red]✗[/red]"
        out.print(f"{mark} {escape(result.claim)}: [dim]{escape(result.observed)}[/dim]")
    failed = sum(not result.ok for result in results)
    verdict = "[green]all hold[/green]" if not failed else f"[red]{failed} do not hold[/red]"
    out.print(f"{len(results)} checks, {verdict}; the tiny demo took {stages.elapsed_s:.0f} s")
    return not failed

"""The tiny demo: the real loop with a model that was made a moment ago.

Made → served → used by an agent under ``opentelemetry-instrument`` → converted → trained on by verl → served again →
used again. Then ``evidence`` looks at what the store holds. It claims no learning.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.markup import escape

from spanloop.cli.console import out
from spanloop.runtime.job_progress import await_job
from spanloop.runtime.services import Ports
from spanloop.runtime.stack import running_stack
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.semconv.errors import ServiceError

from .evidence import Finding, RunRecord, findings
from .settle import wait_until_stored
from .shop_tasks import World, write_world
from .stages import Stages

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

MODEL: Final = "tiny"
_ATTEMPTS: Final = 4
_TRAINING_STEPS: Final = 2
_AGENT_TIMEOUT_S: Final = 180.0
_OTEL_PREFIX: Final = "OTEL_"


def run_tiny(data_dir: "DataDir") -> bool:
    """Run the loop in ``data_dir`` and print what was found; True when everything is as it should be."""
    stages = Stages()
    with ExitStack() as services:
        with stages.stage("services up: ClickHouse, collector, gateway, scheduler"):
            services.enter_context(running_stack(data_dir, Ports.free(), stages.note, dashboard=False, pipeline=False))
        record = _loop(data_dir, stages)
        with stages.stage("the store was looked at"):
            found = findings(data_dir, record)
    return _report(found, stages)


def _loop(data_dir: "DataDir", stages: Stages) -> RunRecord:
    folder = data_dir.path / "demo"
    world = write_world(folder)
    base = _make_model(data_dir, stages)
    _serve(data_dir, stages, base)
    before = folder / "before.json"
    with stages.stage(f"the agent works under opentelemetry-instrument, {_ATTEMPTS} attempts at each task"):
        stages.note(_run_agent(data_dir, world, before, model=MODEL, attempts=_ATTEMPTS))
    _convert(data_dir, stages, [before])
    job_id, version = _train(data_dir, stages, base)
    after = folder / "after.json"
    with stages.stage(f"the agent works with {version}"):
        stages.note(_run_agent(data_dir, world, after, model=MODEL, attempts=1))
    _convert(data_dir, stages, [before, after])
    return RunRecord(base, version, job_id, _TRAINING_STEPS, before, after)


def _make_model(data_dir: "DataDir", stages: Stages) -> str:
    from spanloop.training.registry import Registry

    with stages.stage("a model, its tokenizer and its chat template made on the spot"):
        from transformers.utils.logging import disable_progress_bar

        from spanloop.demo.tiny_model import build_tiny_model

        disable_progress_bar()  # bars for a model that loads in milliseconds
        folder = data_dir.path / "demo" / "model"
        stages.note(f"{build_tiny_model(folder):,} parameters")
        version = Registry(data_dir).add(MODEL, folder)
    return f"{version.name}@{version.version}"


def _serve(data_dir: "DataDir", stages: Stages, model: str) -> None:
    from spanloop.training.deploy import deploy

    with stages.stage(f"vLLM serves {model} behind the gateway"):
        deploy(data_dir, model)


def _run_agent(data_dir: "DataDir", world: World, report: Path, *, model: str, attempts: int) -> str:
    gateway = data_dir.running("gateway")
    if gateway is None:
        raise ServiceError("The gateway went away.", next_step=f"Read {data_dir.logs / 'gateway.log'}")
    # The point of the demo: the agent's process has no OpenTelemetry setting at all.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OTEL_PREFIX)}
    environment |= {DATA_DIR_ENV: str(data_dir.path), "OPENAI_BASE_URL": f"{gateway.url}/v1"}
    instrument = Path(sys.executable).with_name("opentelemetry-instrument")
    script = Path(__file__).with_name("shop_agent.py")
    command = [str(instrument), sys.executable, str(script), str(world.tasks), str(world.database), str(report)]
    command += ["--model", model, "--attempts", str(attempts)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_AGENT_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise ServiceError(f"The agent ended with {done.returncode}:\n{done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def _convert(data_dir: "DataDir", stages: Stages, reports: list[Path]) -> None:
    from spanloop.pipeline import run
    from spanloop.store import connect

    with stages.stage("spans become transitions"), connect(data_dir) as store:
        wait_until_stored(store, reports)
        report = run(store)
        stages.note(f"{report.spans} spans, {report.transitions} transitions, {report.trajectories} token rows")


def _train(data_dir: "DataDir", stages: Stages, base: str) -> tuple[str, str]:
    from spanloop.training.jobs import JobApi, JobKind, JobSpec

    spec = JobSpec(
        kind=JobKind.GRPO,
        base=base,
        steps=_TRAINING_STEPS,
        batch_groups=4,
        group_size=_ATTEMPTS,
        learning_rate=3e-4,
        max_prompt_tokens=512,
        max_response_tokens=512,
        deploy=True,
    )
    with stages.stage("verl trains on them through Ray, and the new weights are served"):
        api = JobApi(data_dir)
        job = await_job(api, data_dir, api.submit(spec).id, lambda _: None)
    return job.id, str(job.model_version)


def _report(found: list[Finding], stages: Stages) -> bool:
    for each in found:
        mark = "[green]✓[/green]" if each.ok else "[red]✗[/red]"
        out.print(f"{mark} {escape(each.claim)}: [dim]{escape(each.seen)}[/dim]")
    failed = sum(not each.ok for each in found)
    verdict = "[green]all hold[/green]" if not failed else f"[red]{failed} do not hold[/red]"
    out.print(f"{len(found)} checks, {verdict}; the tiny demo took {stages.elapsed_s:.0f} s")
    return not failed

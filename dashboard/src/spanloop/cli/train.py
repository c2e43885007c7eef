"""``spanloop train``: queue or schedule a training job."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from spanloop.runtime.command_line import command_line
from spanloop.semconv.enums import JobKind
from spanloop.semconv.errors import ConfigurationError

from .console import err, out
from .jobs import watch_job
from .options import DataDirOption, ModelArgument, data_directory


def train(
    base: ModelArgument,
    data_dir: DataDirOption = None,
    kind: Annotated[
        JobKind, typer.Option(help="grpo learns from rewards, sft imitates stored actions.")
    ] = JobKind.GRPO,
    name: Annotated[str, typer.Option(help="Name of the trained model.", show_default="the base model's name")] = "",
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    batch_groups: Annotated[int | None, typer.Option(help="Groups (grpo) or rows (sft) in a batch.")] = None,
    group_size: Annotated[int | None, typer.Option(help="grpo: most episodes of a group.")] = None,
    epochs: Annotated[int | None, typer.Option(help="grpo: passes over each batch.")] = None,
    max_prompt_tokens: Annotated[int | None, typer.Option(help="Leave out rows with a longer prompt.")] = None,
    max_response_tokens: Annotated[int | None, typer.Option(help="Leave out rows with a longer response.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of shuffling and of every sampler.")] = None,
    min_reward: Annotated[float | None, typer.Option(help="sft: only episodes with at least this reward.")] = None,
    policy_version: Annotated[str, typer.Option(help="Only episodes of this NAME@VERSION.")] = "",
    task_prefix: Annotated[
        str, typer.Option(help="Only episodes whose task id starts with this, to leave a test set out.")
    ] = "",
    task_id: Annotated[list[str] | None, typer.Option(help="Only this task; may be given several times.")] = None,
    pause_serving: Annotated[
        bool, typer.Option(help="Stop vLLM during training to free memory and cores; it serves again afterwards.")
    ] = False,
    deploy: Annotated[bool, typer.Option("--deploy", help="Serve the new version afterwards.")] = False,
    at: Annotated[datetime | None, typer.Option(help="Start at this local time instead of now.")] = None,
    cron: Annotated[str | None, typer.Option(help="Start repeatedly, by five cron fields in UTC.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Watch the job until it ends.")] = False,
) -> None:
    """Train a model on stored episodes, now or on a schedule.

    This command queues the job; the scheduler of a running spanloop (`spanloop up`) runs it.

    Example: `spanloop train tiny --steps 20 --deploy --wait`
    """
    from spanloop.training.jobs import JobApi

    if at is not None and cron is not None:
        raise typer.BadParameter("give --at or --cron, not both")
    starts_at = at.astimezone() if at else None
    if starts_at is not None and starts_at < datetime.now(UTC):
        raise typer.BadParameter(f"{starts_at:%Y-%m-%d %H:%M %Z} has passed; leave --at out to start now")
    if wait and (starts_at or cron):
        raise typer.BadParameter("--wait watches a job that starts now; leave out --at and --cron")

    directory = data_directory(data_dir)
    spec = _spec(
        kind=kind,
        base=base,
        name=name,
        steps=steps,
        learning_rate=learning_rate,
        batch_groups=batch_groups,
        group_size=group_size,
        epochs=epochs,
        max_prompt_tokens=max_prompt_tokens,
        max_response_tokens=max_response_tokens,
        seed=seed,
        min_reward=min_reward,
        policy_version=policy_version,
        task_prefix=task_prefix,
        task_ids=tuple(task_id or ()),
        pause_serving=pause_serving,
        deploy=deploy,
    )
    api = JobApi(directory)
    if at is not None or cron is not None:
        schedule = api.schedule(spec, cron=cron, at=starts_at)
        out.print(f"schedule {schedule.id}: next at {schedule.next_at:%Y-%m-%d %H:%M} UTC", markup=False)
        return
    job = api.submit(spec)
    out.print(job.id, markup=False)
    if directory.running("scheduler") is None:
        err.print(f"no scheduler runs; the job waits until: {command_line('up', directory)}", markup=False)
    if wait:
        watch_job(api, directory, job.id)
    else:
        err.print(f"watch it with: {command_line(f'jobs wait {job.id}', directory)}", markup=False)


def _spec(**options: Any) -> Any:
    """Return a ``JobSpec`` from the given options; ``JobSpec`` has the defaults of the others.

    Raises:
        ConfigurationError: Names every invalid setting.
    """
    from pydantic import ValidationError

    from spanloop.training.jobs import JobSpec

    try:
        return JobSpec.model_validate({key: value for key, value in options.items() if value is not None})
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'job'}: {each['msg']}" for each in error.errors())
        raise ConfigurationError(
            f"The job's settings are invalid: {problems}", next_step="spanloop train --help"
        ) from error

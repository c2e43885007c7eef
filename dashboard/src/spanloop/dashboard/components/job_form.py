"""Draw the form that submits a job now, or schedules it for a time or by cron."""
# pyright: reportUnknownMemberType=false

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, show_error
from spanloop.dashboard.view_models.jobs import FormErrors, JobForm, When, as_utc, to_spec
from spanloop.semconv.enums import JobKind
from spanloop.semconv.errors import SpanloopError
from spanloop.training.jobs import Device, JobSpec

NEXT_VIEW: Final = "jobs_next_view"
"""Session state: the view of the next run, because a widget that is drawn cannot be set."""

_KINDS: Final = {JobKind.GRPO: "GRPO: learn from rewards", JobKind.SFT: "SFT: imitate good episodes"}
_DEVICES: Final = {Device.AUTO: "a GPU where there is one", Device.CPU: "CPU", Device.CUDA: "GPU (CUDA)"}
_WHEN: Final[tuple[When, ...]] = ("Now", "At a time", "Repeatedly")


@dataclass(frozen=True, slots=True)
class _RunTime:
    """When the job runs: now when both are None."""

    at: datetime | None = None
    cron: str | None = None


def show() -> None:
    """Draw the form; submit when the user presses its button."""
    versions = [model.reference for model in resources.registry().list()]
    if not versions:
        empty_state(
            "No model is registered, so there is nothing to train.",
            "Register a Hugging Face folder first:",
            resources.cli_command("models add NAME FOLDER"),
        )
        return
    form = _fields(versions)
    run_time, label = _run_time_control()
    if not st.button(label, type="primary", icon=":material/play_arrow:", key="submit"):
        return
    spec = to_spec(form)
    if isinstance(spec, FormErrors):
        st.error("\n".join(f"- {escape_md(message)}" for message in spec.messages))
        return
    if run_time.at is not None and run_time.at < resources.now():
        st.error(f"{run_time.at:%Y-%m-%d %H:%M} UTC has passed; choose a later time, or “Now”.")
        return
    try:
        _submit(spec, run_time)
    except SpanloopError as error:
        show_error(error)


def _fields(versions: list[str]) -> JobForm:
    kind = st.segmented_control(
        "Kind", list(_KINDS), default=JobKind.GRPO, format_func=_KINDS.__getitem__, key="kind", required=True
    )
    is_grpo = kind is JobKind.GRPO
    first, second, third, fourth = st.columns(4)
    base = first.selectbox("Start from", versions, key="base", help="The model version to train")
    steps = second.number_input(
        "Steps", min_value=1, value=10, key="steps", help="Optimiser steps, each over one batch"
    )
    batch_groups = third.number_input(
        "Groups in a batch" if is_grpo else "Trajectories in a batch", min_value=1, value=8, key="batch_groups"
    )
    learning_rate = fourth.number_input(
        "Learning rate", min_value=0.0, value=1e-6, step=1e-6, format="%.1e", key="learning_rate"
    )
    with st.container(horizontal=True):
        deploy = st.toggle("Serve the new version when training has succeeded", key="deploy")
        pause = st.toggle(
            "Stop serving while it trains",
            key="pause_serving",
            help="Stops vLLM to free memory and cores, and starts it again afterwards",
        )
    form = JobForm(kind, base or "", "", steps, batch_groups, learning_rate, 100_000, 0, deploy, pause_serving=pause)
    with st.expander("Episodes and other settings"):
        return _optional_fields(form, versions)


def _optional_fields(form: JobForm, versions: list[str]) -> JobForm:
    is_grpo = form.kind is JobKind.GRPO
    left, middle, right = st.columns(3)
    prefix = left.text_input(
        "Only tasks that begin with", placeholder="train-", key="task_prefix", help="Keeps a test set out of training"
    )
    tasks = middle.text_input("Only these tasks", placeholder="task-1, task-2", key="task_ids")
    policy = right.selectbox(
        "Only episodes of this version", versions, index=None, placeholder="any version", key="only_version"
    )
    max_episodes = left.number_input("At most this many episodes", min_value=1, value=100_000, key="max_episodes")
    max_prompt_tokens = middle.number_input(
        "Longest prompt (tokens)", min_value=1, value=4096, step=256, key="max_prompt_tokens"
    )
    max_response_tokens = right.number_input(
        "Longest response (tokens)",
        min_value=1,
        value=4096,
        step=256,
        key="max_response_tokens",
        help="Includes tool results between responses; longer rows are left out and counted",
    )
    name = left.text_input("Name of the result", placeholder=form.base.partition("@")[0], key="result_name")
    seed = middle.number_input("Seed", min_value=0, value=0, key="seed")
    group_size: int | None = None
    epochs: int | None = None
    min_reward: float | None = None
    if is_grpo:
        group_size = right.number_input("Episodes of a group", min_value=2, value=8, key="group_size")
        epochs = left.number_input("Passes over each batch", min_value=1, value=1, key="epochs")
    else:
        min_reward = right.number_input(
            "Least reward of an episode", value=None, placeholder="any, or no reward", key="min_reward"
        )
    since = left.datetime_input(
        "Only episodes since (UTC)", value=None, key="since", help="Episodes that started then or later; empty for all"
    )
    device = middle.selectbox("Compute on", list(_DEVICES), format_func=_DEVICES.__getitem__, key="device")
    attempts = right.number_input(
        "Starts at most",
        min_value=1,
        max_value=100,
        value=3,
        key="max_attempts",
        help="A job starts again only after its process or scheduler was killed, not after it failed",
    )
    ray = left.text_input(
        "Ray cluster",
        placeholder="none: the job starts its own",
        key="ray_address",
        help="host:port of a running cluster whose machines have the data directory at the same path",
    )
    return replace(
        form,
        name=name,
        since=since,
        device=device,
        max_attempts=attempts,
        ray_address=ray,
        max_episodes=max_episodes,
        seed=seed,
        policy_version=policy or "",
        task_ids=tasks,
        task_prefix=prefix,
        max_prompt_tokens=max_prompt_tokens,
        max_response_tokens=max_response_tokens,
        group_size=group_size,
        epochs=epochs,
        min_reward=min_reward,
    )


def _run_time_control() -> tuple[_RunTime, str]:
    when = st.segmented_control("When", list(_WHEN), default="Now", key="when", required=True)
    if when == "At a time":
        now = resources.now()
        at = st.datetime_input(
            "Time (UTC)",
            value=(now + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0, tzinfo=None),
            key="at",
            width=260,
        )
        return _RunTime(at=as_utc(at) if at else None), "Schedule it"
    if when == "Repeatedly":
        cron = st.text_input(
            "Cron (UTC)",
            value="0 3 * * *",
            key="cron",
            width=260,
            help="minute hour day month weekday; 0 3 * * * is every night at three",
        )
        return _RunTime(cron=cron), "Schedule it"
    return _RunTime(), "Start it"


def _submit(spec: JobSpec, run_time: _RunTime) -> None:
    api = resources.job_api()
    if run_time == _RunTime():
        job = api.submit(spec)
        st.session_state[NEXT_VIEW] = "Jobs"
        st.query_params["job"] = job.id
    else:
        schedule = api.schedule(spec, cron=run_time.cron, at=run_time.at)
        st.toast(f"Scheduled; it fires next at {schedule.next_at:%Y-%m-%d %H:%M} UTC.")
        st.session_state[NEXT_VIEW] = "Schedules"
    st.rerun()

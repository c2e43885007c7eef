"""Draw the form with all settings of a job, which submits it now or schedules it; the settings are those of JobSpec."""
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, linked_page, show_error
from spanloop.dashboard.view_models.jobs import FormErrors, to_spec
from spanloop.foundation.errors import SpanloopError
from spanloop.training.recipes.registry import all_recipes
from spanloop.training.recipes.setting import Panel
from spanloop.training.run.job_api import JobSpec
from spanloop.training.spec.fields import NONE_TEXT, SpecField, spec_fields
from spanloop.training.spec.presets import Preset

from . import plan, start_control
from .start_control import Start
from .stored_choices import Choices, fetch_choices

NEXT_VIEW: Final = "jobs_next_view"
"""Session state: the view of the next run, because a widget that is drawn cannot be set."""
_ENTERED: Final = "job_form_entered"
"""Session state: the values by setting that the form has when it is opened next."""


def open_with(values: Mapping[str, Any]) -> None:
    """Leave the page for the form, with values by setting entered."""
    st.session_state[_ENTERED] = dict(values)
    st.session_state[NEXT_VIEW] = "New job"
    st.switch_page(linked_page("jobs"))


def show() -> None:
    """Draw the form; submit when the user presses its button, or show the plan."""
    versions = registered_versions()
    if not versions:
        return
    for name, value in st.session_state.pop(_ENTERED, {}).items():
        st.session_state[name] = value
    values = _settings(versions, fetch_choices())
    start, label = start_control.show()
    with st.container(horizontal=True):
        is_submitted = actions.button(label, is_primary=True, icon=":material/play_arrow:", key="submit")
        is_planned = actions.button("Show the plan", icon=":material/checklist:", key="plan", hint=plan.EXPLANATION)
    if not (is_submitted or is_planned):
        return
    spec = valid_spec(values)
    if spec is None:
        return
    if is_planned:
        plan.show(spec)
    else:
        start_job(spec, start)


def registered_versions() -> list[str]:
    """Return the versions that a job can start from; draw what to do where there is none."""
    versions = [model.reference for model in resources.registry().list()]
    if not versions:
        empty_state(
            "No model is registered, so there is nothing to train.",
            "Register a Hugging Face folder first:",
            resources.cli_command("models add NAME FOLDER"),
        )
    return versions


def valid_spec(values: Mapping[str, Any]) -> JobSpec | None:
    """Return the job of values by setting; draw what is wrong with them and return None otherwise."""
    spec = to_spec(values)
    if isinstance(spec, FormErrors):
        st.error("\n".join(f"- {escape_md(message)}" for message in spec.messages))
        return None
    return spec


def select_kind() -> str:
    """Draw the recipes; return the name of the chosen one."""
    field = next(field for field in spec_fields() if field.name == "kind")
    recipes = all_recipes()
    return _segmented(field, lambda kind: recipes[kind].title)


def _settings(versions: list[str], choices: Choices) -> dict[str, Any]:
    """Draw a widget for each setting that the kind uses; return the values by setting."""
    fields = {field.name: field for field in spec_fields()}
    kind = select_kind()
    preset = Preset(_segmented(fields["preset"], lambda preset: Preset(preset).display_name))
    values: dict[str, Any] = {"kind": kind, "preset": preset}
    others = [field for field in spec_fields(preset) if kind in field.recipes and field.name not in values]
    basic = [field for field in others if field.setting.is_basic]
    values |= _grid(basic, kind, versions, choices, columns=4)
    with st.expander("Episodes and other settings"):
        for panel in Panel:
            advanced = [field for field in others if field.setting.panel is panel and not field.setting.is_basic]
            if advanced:
                st.markdown(f"**{panel}**")
                values |= _grid(advanced, kind, versions, choices, columns=3)
    return values


def _segmented(field: SpecField, format_func: Callable[[str], str]) -> str:
    choices = [str(item.value) for item in field.choices]
    chosen = st.segmented_control(
        _label(field),
        choices,
        default=None if field.name in st.session_state else choices[0],
        format_func=format_func,
        key=field.name,
        help=field.help,
        required=True,
    )
    return str(chosen)


def _grid(fields: list[SpecField], kind: str, versions: list[str], choices: Choices, *, columns: int) -> dict[str, Any]:
    toggles = [field for field in fields if field.value_type is bool]
    others = [field for field in fields if field.value_type is not bool]
    values: dict[str, Any] = {}
    for first in range(0, len(others), columns):
        for field, column in zip(others[first : first + columns], st.columns(columns), strict=False):
            with column:
                stored = choices.get(field.name)
                values[field.name] = _widget(field, kind, versions) if stored is None else _stored(field, stored)
    if toggles:
        with st.container(horizontal=True):
            for field in toggles:
                is_on = bool(field.defaults[kind])
                values[field.name] = st.toggle(_label(field), value=is_on, key=_key(field), help=field.help)
    return values


def _widget(field: SpecField, kind: str, versions: list[str]) -> Any:
    label, key, explanation = _label(field), _key(field), field.help
    if field.setting.is_model:
        index = 0 if field.is_required else None
        return st.selectbox(label, versions, index=index, placeholder="any", key=key, help=explanation)
    default = field.defaults[kind]
    if field.choices and not field.is_list:
        options = list(field.choices)
        # as a number: a widget keeps its choice when the kind changes, so a default that differs is a placeholder
        index = None if field.shared_default is None else options.index(default)
        shown = _enum_text(default)
        return st.selectbox(
            label, options, index=index, placeholder=shown, format_func=_enum_text, key=key, help=explanation
        )
    if field.value_type is datetime:
        return st.datetime_input(f"{label} (UTC)", value=None, key=key, help=explanation)
    if field.is_optional:
        # a box of numbers cannot hold none
        shown = NONE_TEXT if default is None else f"{default:g}, or {NONE_TEXT}"
        return st.text_input(label, placeholder=shown, key=key, help=explanation)
    if issubclass(field.value_type, int | float):
        return _number(field, default)
    placeholder = "a, b" if field.is_list else "none"
    return st.text_input(label, placeholder=placeholder, key=key, help=explanation)


def _stored(field: SpecField, stored: Sequence[str]) -> list[str] | str | None:
    """Draw a choice among what the store has."""
    label, key = _label(field), _key(field)
    shown = "any" if stored else "none is stored"
    if field.is_list:
        return st.multiselect(label, stored, placeholder=shown, key=key, help=field.help)
    return st.selectbox(label, stored, index=None, placeholder=shown, key=key, help=field.help)


def _number(field: SpecField, default: Any) -> int | float | None:
    """Draw an empty box with the default as its placeholder, where the kinds differ in it."""
    number = field.value_type
    shown = field.shared_default
    return st.number_input(
        _label(field),
        min_value=None if field.minimum is None else number(field.minimum),
        max_value=None if field.maximum is None else number(field.maximum),
        value=None if shown is None else number(shown),
        placeholder=f"{default:g}",
        step=1 if number is int else None,
        format="%d" if number is int else "%g",
        key=_key(field),
        help=field.help,
    )


def _key(field: SpecField) -> str:
    """Return the key of a widget: another one for each preset that sets it, as a widget keeps its value by its key."""
    return field.name if field.preset is None else f"{field.name} {field.preset}"


def _label(field: SpecField) -> str:
    return field.name.replace("_", " ").capitalize()


def _enum_text(item: Enum) -> str:
    return str(item.value)


def start_job(spec: JobSpec, start: Start) -> None:
    """Submit or schedule a job, and open the page of jobs; draw an error where that fails."""
    if start.at is not None and start.at < resources.now():
        st.error(f"{start.at:%Y-%m-%d %H:%M} UTC has passed; choose a later time, or “Now”.")
        return
    api, opened = resources.job_api(), {}
    try:
        if start == Start():
            job = actions.act(Action.SUBMIT_JOB, str(spec.base), lambda: api.submit(spec), describe=lambda job: job.id)
            opened = {"job": job.id}
        else:
            settings = start.settings()
            schedule = actions.act(
                Action.CREATE_SCHEDULE,
                str(spec.base),
                lambda: api.schedule(spec, cron=start.cron, at=start.at, settings=settings),
                describe=lambda schedule: schedule.id,
            )
            st.toast(f"Scheduled; it ticks next at {schedule.next_at:%Y-%m-%d %H:%M} UTC.")
    except SpanloopError as error:
        show_error(error)
        return
    st.session_state[NEXT_VIEW] = "Jobs" if opened else "Schedules"
    st.switch_page(linked_page("jobs"), query_params=opened)

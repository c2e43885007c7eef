"""The form that starts an evaluation, with what it would do, before it starts.

Invariant: a page names a version, a file of the host and a data set; the agent's command stands in the file.
"""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions, tables
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import linked_page, show_command, show_error
from spanloop.dashboard.view_models.evaluation_plan import plan_rows
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.version_names import CHAMPION
from spanloop.training.evaluations.plan import EvaluationPlan, fetch_plan
from spanloop.training.evaluations.sources import CONFIGURATION, HOW_TO_SAY, NOTHING_KNOWN, evaluation_files
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.spec.stored_spec import EvaluationSpec

from . import form

_NEWEST: Final = "evaluation_plan"
"""Session state: the plan that was drawn last, with its evaluation and its time."""
_FRESH_S: Final = 60


def evaluate_button(*, version: str = "", data_set: str = "", commands: Mapping[str, str] | None = None) -> None:
    """Draw the button that opens the form; a viewer sees none.

    Args:
        version: The version that is evaluated; empty lets the visitor choose one.
        data_set: The data set (``name@v2``) whose tasks are attempted; empty takes those of the file.
        commands: Command lines that do the same where no file says how the agent attempts tasks, by what they do.
    """
    if actions.button("Evaluate", icon=":material/fact_check:", key="evaluate"):
        _show(version, data_set, commands or {})


@st.dialog("Evaluate", width="large", icon=":material/fact_check:")
def _show(version: str, data_set: str, commands: Mapping[str, str]) -> None:
    tasks = f"the tasks of {data_set}" if data_set else "the tasks of the evaluation"
    st.caption(escape_md(f"The agent attempts {tasks} with the version, and each attempt is graded."))
    if not version:
        versions = form.registered_versions()
        if not versions:
            return
        version = st.selectbox("Version", versions, key="evaluate_version")
    spec = _chosen(version, data_set)
    if spec is None:
        st.info(f"{NOTHING_KNOWN} {HOW_TO_SAY}", icon=":material/help:")
        for how, command in commands.items():
            show_command(how, command)
        return
    try:
        resources.evaluation_api().check(spec)
        plan = _plan(spec)
    except SpanloopError as error:
        show_error(error)
        return
    tables.show_facts(plan_rows(plan, spec), heading="evaluation")
    if not plan.tasks:
        st.warning("The source has no task that can be attempted.", icon=":material/block:")
    for rejection in plan.rejections:
        st.caption(escape_md(f"No task: {rejection}"))
    st.caption("The gateway serves the versions in turns meanwhile; what it serves now, it serves again afterwards.")
    if actions.button(
        "Start it",
        icon=":material/play_arrow:",
        key="start_evaluation",
        is_primary=True,
        is_disabled=not plan.tasks,
    ):
        _start(spec)


def _chosen(version: str, data_set: str) -> EvaluationSpec | None:
    """Draw what can be chosen; return the evaluation, or None where no file says how the agent attempts tasks."""
    name = version.partition("@")[0]
    files = evaluation_files(resources.data_dir(), name)
    if not files:
        return None
    file = files[0]
    if len(files) > 1:
        file = st.selectbox("Agent and tasks of", files, format_func=lambda path: path or CONFIGURATION, key="source")
    champion = Aliases(resources.data_dir()).find(name, CHAMPION)
    versions: tuple[str, ...] = (version,)
    if champion is not None and champion.reference != version:
        label = f"With the champion {champion.reference}, so that the rule can compare them"
        if st.toggle(label, value=True, key="evaluate_champion"):
            versions = (version, champion.reference)
    return EvaluationSpec(versions=versions, file=file, data_set=data_set)


def _plan(spec: EvaluationSpec) -> EvaluationPlan:
    drawn: tuple[EvaluationSpec, float, EvaluationPlan] | None = st.session_state.get(_NEWEST)
    now_s = resources.now().timestamp()
    if drawn is not None and drawn[0] == spec and now_s - drawn[1] < _FRESH_S:
        return drawn[2]
    with st.spinner("Reading the tasks…"):
        plan = fetch_plan(resources.data_dir(), spec)
    st.session_state[_NEWEST] = (spec, now_s, plan)
    return plan


def _start(spec: EvaluationSpec) -> None:
    try:
        job = actions.act(
            Action.EVALUATE,
            ", ".join(spec.versions),
            lambda: resources.evaluation_api().submit(spec),
            describe=lambda job: job.id,
        )
    except SpanloopError as error:
        show_error(error)
        return
    st.session_state[form.NEXT_VIEW] = "Jobs"
    st.switch_page(linked_page("jobs"), query_params={"job": job.id})

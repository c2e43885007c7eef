"""Draw what a job would train on and need if it started now: the plan of ``spanloop train --dry-run``."""
# pyright: reportUnknownMemberType=false

from typing import Final, NamedTuple

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import show_error
from spanloop.dashboard.components.tables import Column
from spanloop.foundation.errors import SpanloopError
from spanloop.training.run.job_api import JobSpec
from spanloop.training.run.preview import PreviewedStage, preset_text, preview_stages

EXPLANATION: Final = "What the job would train on, what is left out and why, and how much memory it needs"
_NEWEST: Final = "plan"
"""Session state: the plan that was drawn last, with its job and its time; a page draws it at each click in the form."""
_FRESH_S: Final = 60
"""A plan is computed again after so many seconds, though its job is the same."""


class _Stage(NamedTuple):
    title: str
    heading: str
    rows: tuple[tuple[str, str], ...]
    rejections: tuple[tuple[str, str, int], ...]
    """The kind of item that is left out, the reason, and the number."""
    is_empty: bool


def show(spec: JobSpec) -> bool:
    """Draw the plan of each stage; return whether the first one has something to train on."""
    try:
        stages = _plan(spec)
    except SpanloopError as error:
        show_error(error)
        return False
    for stage in stages:
        if stage.title:
            st.markdown(f"**{escape_md(stage.title)}**, of the rows that are stored now")
        if stage.is_empty:
            st.warning("Nothing is left to train on. The reasons are below.", icon=":material/block:")
        left, right = st.columns([3, 2], gap="medium")
        with left:
            tables.show_facts(dict(stage.rows), heading=stage.heading)
        with right:
            if stage.rejections:
                tables.show_rows(
                    [{"what": what, "reason": why, "count": count} for what, why, count in stage.rejections],
                    {
                        "what": Column("left out", width=76),
                        "reason": Column("because of"),
                        "count": Column("count", "number", width=64),
                    },
                    key=f"left_out {stage.heading} {stage.title}",
                )
            else:
                st.caption("Nothing is left out.")
    if preset := preset_text(spec):
        st.caption(escape_md(f"Preset {preset}."))
    return not stages[0].is_empty


def _plan(spec: JobSpec) -> list[_Stage]:
    drawn: tuple[JobSpec, float, list[_Stage]] | None = st.session_state.get(_NEWEST)
    now_s = resources.now().timestamp()
    if drawn is not None and drawn[0] == spec and now_s - drawn[1] < _FRESH_S:
        return drawn[2]
    with st.spinner("Selecting what it would train on…"):
        stages = [_stage(each) for each in preview_stages(resources.data_dir(), spec)]
    st.session_state[_NEWEST] = (spec, now_s, stages)
    return stages


def _stage(each: PreviewedStage) -> _Stage:
    tallies = {"episodes": each.preview.episodes, "rows": each.preview.rows, "groups": each.preview.groups}
    rejections = tuple(
        (what, reason, count) for what, tally in tallies.items() for reason, count in tally.rejected.items()
    )
    return _Stage(each.title, each.heading, each.rows, rejections, is_empty=not each.preview.steps)

"""List the rounds of loops; a click shows the steps of a round."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, page
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.view_models.rounds import round_row, running_text, schedule_row, step_row
from spanloop.training.loop.rounds import LoopRounds


class RoundsPage(Page):
    """Rounds of loops."""

    title: ClassVar[str] = "Rounds"
    icon: ClassVar[str] = ":material/autorenew:"

    def show(self, context: PageContext) -> None:
        """Draw the rounds."""
        with page(
            "Rounds", "A round collects with the champion, trains, tests and decides. Click a row for its steps."
        ):
            _rounds(context)
            _schedules()


@st.fragment(run_every=5)
def _rounds(context: PageContext) -> None:
    rounds = list(reversed(LoopRounds(context.data_dir).list()))
    if not rounds:
        empty_state("No round yet.", "Write the file of your app, then run its loop:", resources.cli_command("init"))
        return
    for opened in (each for each in rounds if each.outcome is None):
        st.info(escape_md(running_text(list(reversed(rounds)), opened, context.now())), icon=":material/autorenew:")
    rows = tables.to_frame([round_row(each) for each in rounds])
    keys = [f"{each.model}/{each.number}" for each in rounds]
    selected = st.query_params.get("round", "")
    tables.show(
        rows,
        _round_columns(),
        [address("rounds", round=each) for each in keys],
        key="rounds",
        current=address("rounds", round=selected) if selected else "",
    )
    chosen = rounds[keys.index(selected)] if selected in keys else rounds[0]
    st.subheader(f"Steps of round {chosen.number} of {escape_md(chosen.model)}", anchor=False)
    if chosen.steps:
        tables.show(tables.to_frame([step_row(step) for step in chosen.steps]), _step_columns())


def _schedules() -> None:
    """Draw the schedules that begin rounds, each with a link to its row on the page of jobs."""
    api = resources.job_api()
    schedules = [each for each in api.schedules() if each.settings.loop is not None]
    if not schedules:
        return
    st.subheader("Schedules that begin rounds", anchor=False)
    tables.show(
        tables.to_frame([schedule_row(each, api.ticks(each.id, limit=1)) for each in schedules]),
        {"next_at": tables.time_column("next"), "last_tick": tables.text_column("last tick", width=380)},
        [address("jobs", jobs_view="Schedules", schedule=each.id) for each in schedules],
        key="round_schedules",
    )


def _round_columns() -> tables.Columns:
    return {
        "model": tables.text_column("model", width=90),
        "round": tables.number_column("round", width=60),
        "outcome": tables.text_column("decision", width=105),
        "champion": tables.text_column("champion", width=110),
        "success": tables.text_column("success", help="Of the champion, with its 95 % interval", width=120),
        "candidate": tables.text_column("candidate", width=110),
        "its_success": tables.text_column("its success", width=120),
        "started_at": tables.time_column("started"),
        "took": tables.text_column("took", width=90),
        "tokens": tables.number_column("tokens", form=",", width=80),
        "reason": tables.text_column("reason"),
    }


def _step_columns() -> tables.Columns:
    return {
        "step": tables.text_column("step", width=220),
        "state": tables.text_column("state", width=90),
        "took": tables.text_column("took", width=90),
        "tokens": tables.number_column("tokens", form=",", width=80),
        "result": tables.text_column("result", width=420),
    }

"""List the rounds of loops; a click shows the steps of a round."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar

import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import resources
from spanloop.dashboard.components import tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, page
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.view_models.rounds import round_row, running_text, step_row
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
    selected = tables.pick_row(rows, keys, key="rounds", columns=_round_columns())
    chosen = rounds[keys.index(selected)] if selected else rounds[0]
    st.subheader(f"Steps of round {chosen.number} of {escape_md(chosen.model)}", anchor=False)
    if chosen.steps:
        tables.show(tables.to_frame([step_row(step) for step in chosen.steps]), _step_columns())


def _round_columns() -> tables.Columns:
    return {
        "model": TextColumn("model", width=90),
        "round": NumberColumn("round", width=60),
        "outcome": TextColumn("decision", width=105),
        "champion": TextColumn("champion", width=110),
        "success": TextColumn("success", help="Of the champion, with its 95 % interval", width=120),
        "candidate": TextColumn("candidate", width=110),
        "its_success": TextColumn("its success", width=120),
        "started_at": tables.time_column("started"),
        "took": TextColumn("took", width=90),
        "tokens": NumberColumn("tokens", format="localized", width=80),
        "reason": TextColumn("reason", width=300),
    }


def _step_columns() -> tables.Columns:
    return {
        "step": TextColumn("step", width=220),
        "state": TextColumn("state", width=90),
        "took": TextColumn("took", width=90),
        "tokens": NumberColumn("tokens", format="localized", width=80),
        "result": TextColumn("result", width=420),
    }

"""The canary that runs: how candidate and champion do, and a button that ends it. It decides nothing."""
# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions, tables
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import draw_again, show_error
from spanloop.dashboard.view_models.canary import session_rows, shadow_rows, traffic_rows
from spanloop.dashboard.view_models.formatting import ago, count, number, percent, share
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.settings import load_configuration
from spanloop.training.promotion.canary.gateway_canary import RunningCanary, running_canary, stop_canary
from spanloop.training.promotion.canary.look import judge_counted

_REFRESH_S = 10


@st.fragment(run_every=_REFRESH_S)
def show() -> None:
    """Draw the canary that runs, and nothing without one."""
    if not (resources.data_dir().gateway / "canary.json").exists():
        return
    try:
        canary = running_canary(resources.data_dir())
        if canary is not None:
            _canary(canary)
    except SpanloopError as error:
        show_error(error)


def _canary(canary: RunningCanary) -> None:
    with st.container(border=True):
        what = "of the sessions" if not canary.is_shadow else "of the calls, as a shadow that answers nobody"
        st.markdown(
            f":orange[◆] **Canary**: {escape_md(canary.candidate)} gets {share(canary.share)} {what}, beside "
            f"{escape_md(canary.champion)}, since {ago(canary.started_at, resources.now())}."
        )
        if canary.error:
            st.warning(escape_md(f"Its engine is {canary.engine}: {canary.error}"), icon=":material/error:")
        if canary.is_shadow:
            _shadow(canary)
        else:
            _comparison(canary)
        if actions.button("End the canary", icon=":material/stop_circle:", key="stop-canary"):
            with st.spinner("The champion takes over; running calls finish first…"):
                actions.act(Action.END_CANARY, canary.id, lambda: stop_canary(resources.data_dir(), identity=canary.id))
            draw_again()


def _shadow(canary: RunningCanary) -> None:
    row = resources.store().query("canary_shadow", canary_id=canary.id).row(0, named=True)
    answered = row["calls"] - row["errors"]
    columns = st.columns(4)
    columns[0].metric("Copied calls", count(row["calls"]), help=f"{row['errors']:,} failed")
    columns[1].metric("Same answer", percent(row["same"], answered))
    columns[2].metric("Same tools, other arguments", percent(row["same_tools"], answered))
    columns[3].metric("Other answer", percent(row["different"], answered))
    if answered:
        arms = {"candidate": tables.text_column(canary.candidate), "champion": tables.text_column(canary.champion)}
        tables.show(
            tables.to_frame(shadow_rows(row, answered)), {"figure": tables.text_column("both answered"), **arms}
        )


def _comparison(canary: RunningCanary) -> None:
    store = resources.store()
    rule = load_configuration(resources.data_dir().path).promotion
    look = judge_counted(store, canary.id, rule)
    evidence = look.judgement.evidence
    st.caption(escape_md(evidence.reason))
    if evidence.measured is not None:
        columns = st.columns(3)
        columns[0].metric("Difference", f"{evidence.measured.difference:+.3f}")
        columns[1].metric("Evidence that it is better", number(evidence.measured.better_e_value))
        columns[2].metric(
            "Evidence that it is worse",
            number(evidence.measured.worse_e_value),
            help=f"An e-value: the factor by which a bet has grown. {1 / rule.alpha:g} decides.",
        )
    arms = {"candidate": tables.text_column(canary.candidate), "champion": tables.text_column(canary.champion)}
    counted, traffic = st.columns(2)
    with counted:
        tables.show(
            tables.to_frame(session_rows(look)),
            {"figure": tables.text_column("mean over counted sessions", width=220), **arms},
        )
    with traffic:
        rows = store.query("canary_traffic", canary_id=canary.id).to_dicts()
        tables.show(tables.to_frame(traffic_rows(rows)), {"figure": tables.text_column("all calls", width=220), **arms})

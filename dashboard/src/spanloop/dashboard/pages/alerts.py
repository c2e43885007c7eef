"""List rules of alerts and what they alerted, with a form for new rules; ``?rule=…`` selects one to test or remove.

``?name=…&when=…`` fills the form.
"""
# pyright: reportUnknownMemberType=false

from typing import ClassVar, Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions, tables
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import draw_again, page, show_error, show_not_running
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths.service_states import may_run_elsewhere
from spanloop.training.alerts.alert_api import configured_channels
from spanloop.training.alerts.entities import Alert, AlertState, Rule

_CONDITION_HELP: Final = (
    "failures above 20% over 1h · timeout of planner above 5% over 1h with at least 20 episodes · reward below 0.5 "
    "over 1d · latency p95 above 30s over 15m · cost above 20 over 1d · job failed, done or ended · promotion"
)
_SHOWN: Final = 100
"""Alerts of the history that are shown."""
_TONES: Final[dict[AlertState, tables.Tone]] = {
    AlertState.FIRING: "bad",
    AlertState.RESOLVED: "good",
    AlertState.HAPPENED: "info",
    AlertState.TEST: "",
}


class AlertsPage(Page):
    """Rules of alerts, and what they alerted."""

    title: ClassVar[str] = "Alerts"
    icon: ClassVar[str] = ":material/notifications:"

    def show(self, context: PageContext) -> None:
        """Draw the rules, the form and the history."""
        with page("Alerts", "A rule sends a message when its condition begins to hold. Click a rule to test it."):
            directory = context.data_dir
            if directory.running("scheduler") is None and not may_run_elsewhere(directory.path, "scheduler"):
                show_not_running(
                    "No scheduler runs: nothing is alerted.",
                    "Start everything with",
                    resources.cli_command("up"),
                    icon=":material/pause_circle:",
                )
            selected = st.query_params.get("rule", "")
            _rules(selected)
            if actions.may_act():
                _form(configured_channels(directory.path))
            _history(selected)


def _rules(selected: str) -> None:
    api = resources.alert_api()
    rules, firing = api.rules(), api.firing()
    if not rules:
        st.info("No rule yet.", icon=":material/notifications_off:")
        return
    tables.show_rows(
        [_rule_row(rule, firing.get(rule.name)) for rule in rules],
        {
            "state": Column("state", "tag", width=80),
            "rule": tables.text_column("rule", width=160),
            "condition": tables.text_column("condition", width=380),
            "channels": tables.text_column("sends to", width=160),
            "since": tables.time_column("fires since"),
            "detail": tables.text_column("because of", width=260),
        },
        [address("alerts", rule=rule.name) for rule in rules],
        key="alert_rules",
    )
    if any(rule.name == selected for rule in rules):
        _rule_actions(selected)


def _rule_row(rule: Rule, alert: Alert | None) -> dict[str, object]:
    return {
        "state": tables.tag("quiet", "good") if alert is None else tables.tag("firing", "bad"),
        "rule": rule.name,
        "condition": str(rule.condition),
        "channels": ", ".join(rule.channels),
        "since": None if alert is None else alert.opened_at,
        "detail": "" if alert is None else tables.link_cell(alert.detail, alert.link),
    }


def _rule_actions(name: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{escape_md(name)}**")
        if actions.button("Test", icon=":material/send:", key="test_alert", hint="Send a test message to its channels"):
            actions.act(Action.TEST_ALERT, name, lambda: resources.alert_api().test(name))
            st.toast("The scheduler sends the test; its outcome is in the history below.")
        if actions.button("Remove this rule", icon=":material/delete:", key="remove_alert"):
            actions.act(Action.REMOVE_ALERT, name, lambda: resources.alert_api().remove(name))
            st.query_params.pop("rule", None)
            draw_again()


def _form(channels: tuple[str, ...]) -> None:
    named, when = st.query_params.get("name", ""), st.query_params.get("when", "")
    is_open = bool(when) or not resources.alert_api().rules()
    with st.expander("Add a rule", icon=":material/add_alert:", expanded=is_open):
        if not channels:
            st.caption("spanloop.toml has no channel yet. Add one, then reload:")
            st.code('[alerts.channels.ops]\nkind = "slack"\nurl_env = "OPS_WEBHOOK_URL"', language="toml")
            return
        with st.container(horizontal=True, vertical_alignment="bottom"):
            name = st.text_input("Name", value=named, key="alert_name", width=200, placeholder="bad-answers")
            condition = st.text_input(
                "When",
                value=when or "failures above 20% over 1h",
                key="alert_condition",
                width=420,
                help=_CONDITION_HELP,
            )
            to = st.multiselect("Send to", channels, default=channels[:1], key="alert_channels", width=260)
            is_pressed = actions.button("Add", icon=":material/add:", key="add_alert", is_primary=True)
        st.caption(escape_md(_CONDITION_HELP))
        if is_pressed:
            try:
                actions.act(
                    Action.ADD_ALERT,
                    name,
                    lambda: resources.alert_api().add(name, condition, to),
                    describe=lambda rule: str(rule.condition),
                )
            except SpanloopError as error:
                show_error(error)
            else:
                st.query_params["rule"] = name
                draw_again()


@st.fragment(run_every=2)
def _history(selected: str) -> None:
    alerts = resources.alert_api().history(rule=selected, limit=_SHOWN)
    st.subheader(f"History of {escape_md(selected)}" if selected else "History", anchor=False)
    if not alerts:
        st.caption("Nothing was alerted.")
        return
    tables.show_rows(
        [_alert_row(alert) for alert in alerts],
        {
            "state": Column("state", "tag", width=92),
            "rule": tables.text_column("rule", width=150),
            "opened_at": tables.time_column("began"),
            "resolved_at": tables.time_column("ended"),
            "detail": tables.text_column("because of", help="A row opens what caused it", width=330),
            "messages": tables.text_column("messages", help="What became of the message to each channel", width=400),
        },
        [alert.link for alert in alerts],
        key="alert_history",
    )
    if selected:
        st.markdown(f"[History of all rules]({address('alerts')})")


def _alert_row(alert: Alert) -> dict[str, object]:
    has_end = alert.state in {AlertState.FIRING, AlertState.RESOLVED}
    return {
        "state": tables.tag(alert.state.value, _TONES[alert.state]),
        "rule": alert.rule,
        "opened_at": alert.opened_at,
        "resolved_at": alert.resolved_at if has_end else None,
        "detail": alert.detail,
        "messages": "; ".join(map(str, alert.deliveries)),
    }

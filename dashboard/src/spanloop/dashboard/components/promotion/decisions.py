"""Decisions about versions, each with its evidence."""
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, evaluation_figures, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import linked_page
from spanloop.dashboard.view_models.champions import basis_text, champion_series
from spanloop.dashboard.view_models.formatting import ago, number
from spanloop.foundation.settings import Promotion
from spanloop.training.promotion.evidence import Decision, Evidence, GuardCheck, Measured
from spanloop.training.promotion.outcome import PromotionOutcome

MARKS: Final = {
    PromotionOutcome.PROMOTED: ":green[▲ promoted]",
    PromotionOutcome.KEPT: ":gray[■ not promoted]",
    PromotionOutcome.ROLLED_BACK: ":red[▼ rolled back]",
    PromotionOutcome.UNDECIDED: ":orange[◆ undecided]",
}


def show(decisions: Sequence[Decision]) -> None:
    """Draw decisions about one version, the newest one open."""
    if not decisions:
        return
    st.markdown("**Decisions**")
    for number_of, decision in enumerate(decisions):
        rival = f" against {escape_md(decision.champion)}" if decision.champion else ""
        heading = f"{MARKS[decision.outcome]}{rival}, {ago(decision.decided_at, resources.now())}"
        with st.expander(heading, expanded=number_of == 0):
            key = f"guards of decision {number_of + 1}"
            show_evidence(decision.evidence, decision.candidate, decision.champion, decision.rule, key=key)
            if decision.job_id:
                st.page_link(linked_page("jobs"), label="The job that decided", query_params={"job": decision.job_id})


def show_champion(name: str, decisions: Sequence[Decision]) -> None:
    """Draw the champion of a model over its decisions, newest first; nothing without a comparison."""
    metric = next((each.evidence.measured.metric for each in decisions if each.evidence.measured), None)
    if metric is None:
        return
    same = [each for each in decisions if each.evidence.measured and each.evidence.measured.metric is metric]
    title = evaluation_figures.title(metric)
    st.markdown(f"**The champion of {escape_md(name)}**")
    chart = charts.champion_by_decision(champion_series(same), title, is_share=metric.is_share)
    charts.draw(chart)
    st.caption(basis_text(same))


def show_evidence(
    evidence: Evidence, candidate: str, champion: str, rule: Promotion | None, *, key: str = "guards"
) -> None:
    """Draw why a decision is what it is.

    Args:
        evidence: What it was computed from.
        candidate: ``name@version``.
        champion: ``name@version``; empty when there was none.
        rule: What had to be shown; None when no rule was asked.
        key: Names the table of guards; a page may show equal evidence twice.
    """
    st.markdown(escape_md(evidence.reason))
    if evidence.measured is not None:
        _measured(evidence.measured, candidate, champion)
    if evidence.guards:
        tables.show(
            tables.to_frame([_guard_row(check) for check in evidence.guards]),
            {
                "guard": tables.text_column(),
                "candidate": tables.number_column(candidate, form=".3f"),
                "champion": tables.number_column(champion, form=".3f"),
                "holds": tables.text_column(width=90),
            },
            key=key,
        )
    notes = [
        f"Evaluations: {escape_md(' and '.join(evidence.evaluations))}." if evidence.evaluations else "",
        f"Look {evidence.looks}." if evidence.looks > 1 else "",
        f"Rule: {rule.metric} by more than {rule.margin:g}, alpha {rule.alpha:g}." if rule else "No rule was asked.",
    ]
    st.caption(" ".join(note for note in notes if note))


def _measured(measured: Measured, candidate: str, champion: str) -> None:
    columns = st.columns(4)
    name = evaluation_figures.title(measured.metric).capitalize()
    columns[0].metric(escape_md(f"{name}, {candidate}"), number(measured.candidate))
    columns[1].metric(escape_md(f"{name}, {champion}"), number(measured.champion))
    columns[2].metric("Difference", f"{measured.difference:+.3f}")
    if measured.interval is not None:
        columns[2].caption(f"{measured.interval.range_text('+.3f')}, at all looks at once")
    columns[3].metric(
        "Evidence for it",
        number(measured.better_e_value),
        help="The e-value: the factor by which a bet on the candidate has grown. 1 / alpha decides.",
    )
    columns[3].caption(f"{measured.wins} won, {measured.losses} lost of {measured.count}")


def _guard_row(check: GuardCheck) -> dict[str, object]:
    return {
        "guard": f"{evaluation_figures.title(check.metric)}: {check.limit.replace('_', ' ')}",
        "candidate": check.candidate,
        "champion": check.champion,
        "holds": "yes" if check.holds else "not shown",
    }

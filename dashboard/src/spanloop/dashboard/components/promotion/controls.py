"""Decide about a version: by the rule, with its evidence first; by a canary; or back to the champion before."""
# pyright: reportUnknownMemberType=false

from typing import Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import draw_again, linked_page, show_command, show_error
from spanloop.evaluation.results import EvaluationError
from spanloop.foundation.errors import JobError, SpanloopError
from spanloop.foundation.settings import Promotion, load_configuration
from spanloop.foundation.version_names import CHAMPION
from spanloop.training.models.registry import ModelVersion
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.canary.decision import begin_canary
from spanloop.training.promotion.canary.gateway_canary import CanaryRequest
from spanloop.training.promotion.decisions import Contest, Decisions
from spanloop.training.promotion.evidence import Decision
from spanloop.training.promotion.promote import Actions, promote, roll_back, weigh

from . import decisions

_SHARE: Final = 0.1
"""The share of the sessions that a canary gets, unless the operator changes it."""
_NOT_RUNNING: Final = "The gateway does not run."


def show(model: ModelVersion) -> None:
    """Draw what can be decided about a version now."""
    if model.is_pruned:
        return
    directory = resources.data_dir()
    champion = Aliases(directory).find(model.name, CHAMPION)
    if champion is not None and champion.reference == model.reference:
        _rollback(model)
        return
    rule = load_configuration(directory.path).promotion
    contest = Decisions(directory).contest(model.reference)
    if contest.champion is None:
        return
    with st.container(border=True):
        st.markdown(f"**Decide** whether it replaces {escape_md(contest.champion_reference)}")
        has_evidence = _weigh(contest, rule)
        with st.container(horizontal=True, vertical_alignment="center"):
            _by_rule(model, rule, has_evidence=has_evidence)
            _canary(model, rule)


def _weigh(contest: Contest, rule: Promotion) -> bool:
    """Draw what the rule says now, and return whether it has evaluations to say it from; nothing is stored."""
    earlier = Decisions(resources.data_dir()).list(candidate=contest.candidate.reference)
    try:
        judgement = weigh(resources.store(), contest, rule, earlier=earlier)
    except EvaluationError as error:
        st.caption(escape_md(f"The rule cannot decide yet. {error.what}"))
        versions = (contest.candidate.reference, contest.champion_reference)
        commands = (resources.cli_command(f"evaluate {version} --name NAME --run RUN") for version in versions)
        show_command("Next: let both attempt the same tasks (spanloop run), then measure each:", "\n".join(commands))
        return False
    except SpanloopError as error:
        show_error(error)
        return False
    st.markdown(f"The rule would say {decisions.MARKS[judgement.outcome]}")
    decisions.show_evidence(judgement.evidence, contest.candidate.reference, contest.champion_reference, rule)
    return True


def _by_rule(model: ModelVersion, rule: Promotion, *, has_evidence: bool) -> None:
    hint = "" if has_evidence else "Evaluate both versions on the same tasks first."
    hint = hint or ("" if resources.data_dir().find("gateway") else _NOT_RUNNING)
    if actions.button(
        "Decide by the rule",
        icon=":material/gavel:",
        key="decide",
        is_primary=True,
        is_disabled=bool(hint),
        hint=hint or "A version that the rule promotes is served and becomes the champion.",
    ):
        with st.spinner("Deciding; a version that is promoted is loaded by the gateway…"):
            decided = actions.act(
                Action.DECIDE,
                model.reference,
                lambda: promote(resources.store(), model.reference, rule, Actions(resources.data_dir())),
                describe=lambda decision: f"{decision.outcome} against {decision.champion}",
            )
        _announce(decided)


def _canary(model: ModelVersion, rule: Promotion) -> None:
    if not actions.may_act():
        return
    with st.popover("Start a canary", icon=":material/experiment:"):
        st.caption("The candidate answers a share of the new sessions until the rule promotes it or rolls it back.")
        share = st.number_input("Share", min_value=0.01, max_value=1.0, value=_SHARE, step=0.05, key="canary_share")
        shadow = "Shadow: it gets copies of calls and answers nobody"
        is_shadow = st.toggle(shadow, key="canary_shadow", help="Its answers are compared; nothing is decided.")
        is_up = resources.data_dir().find("gateway") is not None
        if actions.button(
            "Start it",
            icon=":material/play_arrow:",
            key="start_canary",
            is_primary=True,
            is_disabled=not is_up,
            hint=None if is_up else _NOT_RUNNING,
        ):
            request = CanaryRequest(model.reference, share, is_shadow)
            with st.spinner("Starting the candidate's engine beside the champion's…"):
                actions.act(
                    Action.START_CANARY,
                    model.reference,
                    lambda: begin_canary(resources.data_dir(), request, rule),
                    describe=lambda canary: canary.id,
                )
            draw_again()


def _rollback(model: ModelVersion) -> None:
    directory = resources.data_dir()
    try:
        contest = Decisions(directory).rollback_target(model.name)
    except JobError:
        return  # the first champion has none before it
    is_up = directory.find("gateway") is not None
    if actions.button(
        f"Take the promotion back: serve {contest.champion_reference}",
        icon=":material/undo:",
        key="roll_back",
        is_disabled=not is_up,
        hint=None if is_up else _NOT_RUNNING,
    ):
        with st.spinner(f"The gateway loads {escape_md(contest.champion_reference)}; requests wait until then…"):
            decided = actions.act(
                Action.ROLL_BACK,
                model.name,
                lambda: roll_back(model.name, Actions(directory)),
                describe=lambda decision: f"{decision.champion} serves",
            )
        _announce(decided)


def _announce(decision: Decision) -> None:
    """Open the version again, where the decision stands with its evidence."""
    st.toast(f"{decision.candidate}: {decision.outcome}")
    st.switch_page(linked_page("models"), query_params={"model": decision.candidate})

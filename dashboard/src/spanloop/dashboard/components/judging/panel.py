"""Judge an episode, a step or a failure: keys and buttons, a form for the rest, and what people said so far.

Invariant: a judgement is stored by `act` alone, under the visitor's name. The panel shows judgements and the ratings
that programs sent side by side, and says which ones the shown revision counts.
"""
# pyright: reportUnknownMemberType=false

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import polars as pl
import streamlit as st
from pydantic import ValidationError
from streamlit.components.v2 import component

from spanloop.dashboard import resources, visits
from spanloop.dashboard.components import actions
from spanloop.dashboard.components.actions import Action, act, may_act
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import draw_again, show_error
from spanloop.dashboard.frontend import asset
from spanloop.dashboard.queries import episodes
from spanloop.dashboard.view_models.formatting import one_line
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.tables.judged_values import PERSON_RULE, FaultOwner
from spanloop.store import Store
from spanloop.store.judgements import (
    Opinion,
    fetch_judgements,
    find_target,
    judge,
    withdraw,
)

_bar: Final[Any] = component(
    "spanloop_judge",
    html='<div class="judge-host"></div>',
    css=asset("judge.css"),
    js=asset("common.js") + asset("judge.js"),
)
_KEY: Final = "judge"
"""One bar for every episode: a bar that the next run replaces would hear keys beside the new one. A key that was
pressed before the bar showed the next episode names the former one, and counts for nothing."""
_REFRESH_S: Final = 2
_OTHERS: Final = [owner.value for owner in FaultOwner if owner is not FaultOwner.POLICY]


class Moves(NamedTuple):
    """Neighbours in a queue, as addresses; empty without one."""

    left: str
    skip: str
    previous: str
    next: str


class About(NamedTuple):
    """A choice of the form: the episode, or a step or failure of it."""

    label: str
    step: int | None = None
    failure: int | None = None


def show(store: Store, episode: episodes.Episode, *, moves: Moves | None = None) -> bool:
    """Draw the panel of an episode; return whether the visitor has just judged it by key or button."""
    judgements = _of_episode(fetch_judgements(store, trace_ids=list(episode.trace_ids)), episode)
    mine = judgements.filter((pl.col("scope") == "episode") & (pl.col("judged_by") == visits.visitor().name))
    current = mine.row(0, named=True) if not mine.is_empty() else {"verdict": "", "fault_owner": ""}
    opinion = _mount(
        _KEY,
        target=episode.episode_id,
        labels={"good": "Good", "bad": "Bad"},
        verdict=current["verdict"],
        owner=current["fault_owner"],
        owners_label="Not the policy's fault",
        state="" if may_act() else "Only operators judge.",
        has_keys=True,
        moves=moves,
    )
    has_judged = opinion is not None and store_opinion(store, episode.episode_id, About("the episode"), opinion)
    if has_judged:
        return True
    _judgements_so_far(store, episode, judgements)
    if set(judgements["judgement_id"]) - set(episode.judgements):
        _await_conversion(store, episode)
    _ratings(store, episode)
    if may_act():
        newest = judgements["judgement_id"].head(1).to_list()
        # What was written for another episode, or is saved already, must not be saved again.
        _form(store, episode, key="_".join([episode.episode_id, *newest]))
    return False


def show_moves(moves: Moves) -> None:
    """Draw the neighbours in a queue of an episode that cannot be judged."""
    _mount(
        _KEY,
        target="",
        labels={"good": "Good", "bad": "Bad"},
        verdict="",
        owner="",
        owners_label="",
        state="",
        has_keys=True,
        moves=moves,
    )


def show_for_failure(store: Store, episode: episodes.Episode, failure: Mapping[str, Any]) -> None:
    """Draw the buttons that judge one failure of the episode."""
    number = int(str(failure["failure_id"]).rpartition("/")[2])
    if not may_act() or failure["rule"] == PERSON_RULE:
        return
    opinion = _mount(
        f"judge_{failure['failure_id']}",
        target=str(failure["failure_id"]),
        labels={"good": "No failure", "bad": "The rule is right"},
        verdict="",
        owner="",
        owners_label="Another owner",
        state="",
        has_keys=False,
        moves=None,
    )
    if opinion is not None and store_opinion(
        store, episode.episode_id, About(f"failure {number}", failure=number), opinion
    ):
        draw_again()


def store_opinion(store: Store, episode_id: str, about: About, fields: Mapping[str, object]) -> bool:
    """Store what the visitor says; draw why where it is refused, and return whether it is stored."""
    try:
        opinion = Opinion.model_validate(dict(fields))
        act(
            Action.JUDGE,
            f"{episode_id} {about.label}",
            lambda: judge(
                store,
                find_target(store, episode_id, step=about.step, failure=about.failure),
                opinion,
                judged_by=visits.visitor().name,
            ),
            describe=lambda identity: f"{opinion.stated_verdict or 'note'} {identity}",
        )
    except ValidationError as error:
        problem = "; ".join(each["msg"] for each in error.errors())
        show_error(ConfigurationError(f"The judgement is invalid: {problem}.", next_step="Choose a verdict."))
        return False
    except ConfigurationError as error:
        show_error(error)
        return False
    return True


def _mount(
    key: str,
    *,
    target: str,
    labels: Mapping[str, str],
    verdict: str,
    owner: str,
    owners_label: str,
    state: str,
    has_keys: bool,
    moves: Moves | None,
) -> dict[str, object] | None:
    data = {
        "target": target,
        "canAct": may_act(),
        "labels": labels,
        "verdict": verdict,
        "owner": owner if owner != FaultOwner.POLICY else "",
        "owners": _OTHERS,
        "ownersLabel": owners_label,
        "state": state,
        "hasKeys": has_keys,
        "moves": moves._asdict() if moves else None,
    }
    result: Any = _bar(data=json.loads(json.dumps(data)), key=key, on_opinion_change=lambda: None)
    if not result.opinion or result.opinion["target"] != target:
        return None
    return {name: value for name, value in result.opinion.items() if name != "target"}


def _of_episode(judgements: pl.DataFrame, episode: episodes.Episode) -> pl.DataFrame:
    """Return the judgements of one episode: a trace may hold several."""
    is_counted = pl.col("judgement_id").is_in(list(episode.judgements))
    return judgements.filter((pl.col("episode_id") == episode.episode_id) | is_counted)


def _judgements_so_far(store: Store, episode: episodes.Episode, judgements: pl.DataFrame) -> None:
    """Draw each judgement with a button that takes it back."""
    for row in judgements.iter_rows(named=True):
        identity = row["judgement_id"]
        pending = "" if identity in episode.judgements else " · :gray[counts after the next conversion]"
        with st.container(horizontal=True, vertical_alignment="center"):
            by = "" if row["judged_by"] == visits.ANYONE else f"**{escape_md(row['judged_by'])}**: "
            st.markdown(f"{by}{_in_words(row)}{pending}", width="content")
            if actions.button("Take back", icon=":material/undo:", key=f"undo_{identity}"):
                _take_back(store, row["episode_id"], identity)
                draw_again()


@st.fragment(run_every=_REFRESH_S)
def _await_conversion(store: Store, episode: episodes.Episode) -> None:
    """Draw the page again once the episode is converted with the judgements that it shows as pending."""
    newest = episodes.fetch_episode(store, episode.episode_id)
    if newest is not None and newest.revision != episode.revision:
        draw_again()


def _take_back(store: Store, episode_id: str, identity: str) -> None:
    act(Action.WITHDRAW_JUDGEMENT, f"{episode_id} {identity}", lambda: withdraw(store, [identity]))


def _in_words(row: Mapping[str, Any]) -> str:
    tone = {"good": "green", "bad": "red"}.get(row["verdict"], "gray")
    place = {"episode": "", "step": f"step {row['step']} "}.get(row["scope"], f"failure at step {row['step']} ")
    verdict = f"marked {row['verdict']}" if row["verdict"] else "note"
    facts = [
        f":{tone}[{place}{verdict}]",
        f"fault of the {escape_md(row['fault_owner'])}" if row["fault_owner"] else "",
        escape_md(row["category"]),
        f"reward {row['number']:g}" if row["number"] is not None else "",
        f"“{escape_md(one_line(row['comment'], 300))}”" if row["comment"] else "",
        f"correct: “{escape_md(one_line(row['correction'], 300))}”" if row["correction"] else "",
        f":gray[{row['judged_at'].astimezone(ZoneInfo(resources.time_zone())):%Y-%m-%d %H:%M %Z}]",
    ]
    return " · ".join(fact for fact in facts if fact)


def _ratings(store: Store, episode: episodes.Episode) -> None:
    """Draw the scores that arrived for the episode, in one line each."""
    for row in episodes.fetch_episode_scores(store, episode).iter_rows(named=True):
        facts = [f"{row['value']:g}", escape_md(row["label"]), escape_md(one_line(row["comment"], 200))]
        words = " · ".join(fact for fact in facts if fact)
        by = f" by {escape_md(row['source'])}" if row["source"] else ""
        st.caption(f"rating **{escape_md(row['name'])}**{by}: {words}")


def _form(store: Store, episode: episodes.Episode, *, key: str) -> None:
    with st.expander(
        "Say more: a step or a failure, owner, category, reward, the right answer", icon=":material/edit_note:"
    ):
        about = st.selectbox(
            "About", _choices(store, episode), format_func=lambda each: each.label, key=f"judge_about_{key}"
        )
        left, middle, right = st.columns(3)
        verdict = left.segmented_control("Verdict", ["good", "bad"], key=f"judge_verdict_{key}")
        owner = middle.selectbox("Whose fault", ["", *(each.value for each in FaultOwner)], key=f"judge_owner_{key}")
        number = right.number_input("Reward", value=None, key=f"judge_number_{key}", placeholder="unchanged")
        category = left.text_input("Category", key=f"judge_category_{key}", help="Class of what is wrong, and a mark")
        comment = st.text_area("Comment", key=f"judge_comment_{key}", height=68)
        correction = st.text_area("The right answer", key=f"judge_correction_{key}", height=68)
        if not actions.button("Save judgement", icon=":material/check:", key=f"judge_save_{key}", is_primary=True):
            return
        fields = {
            "verdict": verdict,
            "fault_owner": owner,
            "category": category,
            "number": number,
            "comment": comment,
            "correction": correction,
        }
        if store_opinion(store, episode.episode_id, about, fields):
            draw_again()


def _choices(store: Store, episode: episodes.Episode) -> list[About]:
    failures = episodes.fetch_episode_failures(store, episode)
    of_failures = [
        About(f"failure {number}: {row['fault_owner']} · {row['error_class']} at step {row['step']}", failure=number)
        for row in failures.iter_rows(named=True)
        if (number := int(row["failure_id"].rpartition("/")[2])) >= 0
    ]
    steps = [About(f"step {step}", step=step) for step in range(episode.step_count)]
    return [About("the episode"), *of_failures, *steps]

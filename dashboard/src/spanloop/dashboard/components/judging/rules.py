"""Where people agree and disagree with the rules of attribution."""
# pyright: reportUnknownMemberType=false

from typing import Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import tables
from spanloop.dashboard.components.page_frame import empty_state, link_back
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.view_models.formatting import percent
from spanloop.store import Store
from spanloop.store.judgements import compare_with_rules, count_by_rule

_MAX_ROWS: Final = 500


def show(store: Store) -> None:
    """Draw a row for each rule that people judged."""
    rules = count_by_rule(store)
    if rules.is_empty():
        empty_state(
            "Nobody has judged what a rule says.",
            "Press g or b on an episode, or judge a failure:",
            resources.cli_command("judge add bad --episode EPISODE --failure 0 --owner environment"),
        )
        return
    st.caption(
        "Judgements that count, by the rule whose verdict the person saw. “outcome” stands for episodes that no "
        "failure decided, “no failure” for steps without one."
    )
    tables.show_rows(
        [
            {
                "rule": row["rule"],
                "judged": row["judged"],
                "agreed": row["agreed"],
                "disagreed": row["disagreed"],
                "share": {"text": percent(row["disagreed"], row["judged"]), "key": row["disagreed"] / row["judged"]},
                "newest": row["newest"],
            }
            for row in rules.iter_rows(named=True)
        ],
        {
            "rule": Column("rule"),
            "judged": Column("judged", "number", width=80),
            "agreed": Column("agreed", "number", width=80),
            "disagreed": Column("disagreed", "number", width=90),
            "share": Column("share", "number", "Disagreements of all judgements", 70),
            "newest": tables.time_column("newest"),
        },
        [address("failures", rule=each) for each in rules["rule"].to_list()],
        key="rules",
    )


def show_rule(store: Store, rule: str) -> None:
    """Draw each judgement of a rule's verdicts, disagreements first."""
    link_back("failures", "All failures")
    judgements = compare_with_rules(store, rule, limit=_MAX_ROWS)
    if judgements.is_empty():
        st.info("Nobody has judged what this rule says.", icon=":material/inbox:")
        return
    rows = list(judgements.iter_rows(named=True))
    tables.show_rows(
        [
            {
                "when": row["judged_at"],
                "differs": tables.tag("disagrees", "bad") if row["differs"] else tables.tag("agrees", "good"),
                "rule": " · ".join(filter(None, (row["rule_owner"], row["rule_class"]))) or row["rule_outcome"],
                "person": " · ".join(filter(None, (row["verdict"], row["fault_owner"], row["category"]))),
                "by": row["judged_by"],
                "about": row["scope"] if row["scope"] == "episode" else f"{row['scope']} at {row['step']}",
                "comment": row["comment"],
                "episode": row["episode_id"],
            }
            for row in rows
        ],
        {
            "when": tables.time_column("when"),
            "differs": Column("person", "tag", width=90),
            "rule": Column("the rule says", width=190),
            "person": Column("the person says", width=190),
            "by": Column("by", width=90),
            "about": Column("about", width=90),
            "comment": Column("comment", "preview"),
            "episode": Column("episode", "id", width=112),
        },
        [address("episodes", episode=row["episode_id"], view="Failures") for row in rows],
        key="judgements",
    )

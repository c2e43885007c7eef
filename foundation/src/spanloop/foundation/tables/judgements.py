"""Table of what people say about episodes, steps and failures."""

from typing import Final

from .column import LOW_CARDINALITY, TIME_NS, TIME_US, Column, Table

JUDGEMENTS: Final = Table(
    "judgements",
    (
        Column("judgement_id", "String", "key of the version: the same version stored twice is one row"),
        Column("episode_id", "String", "the episode, as the person saw it"),
        Column("revision", "UInt64", "the revision of the episode that the person saw"),
        Column("scope", LOW_CARDINALITY, "what is judged: `episode`, `step` or `failure`"),
        Column("step", "UInt32", "the step, as the person saw it; 0 for an episode"),
        Column("trace_id", "String", "trace of the span"),
        Column("span_id", "String", "the step's span, the failure's, or that of the episode's first step"),
        Column("fingerprint", "String", "fingerprint of the failure; empty for other scopes"),
        Column("verdict", LOW_CARDINALITY, "`good`, `bad` or empty"),
        Column(
            "fault_owner", LOW_CARDINALITY, "who caused the failure, in place of the rule's; empty keeps the rule's"
        ),
        Column("category", LOW_CARDINALITY, "class of what is wrong, and a mark of the episode; empty without one"),
        Column("number", "Nullable(Float64)", "reward of the episode or step; null without one"),
        Column("correction", "String", "the answer that would have been right; empty without one"),
        Column("comment", "String", "the reason; empty without one"),
        Column("judged_by", LOW_CARDINALITY, "name of the person"),
        Column("judged_at", TIME_NS, "when; of one person and target the newest version counts"),
        Column("is_withdrawn", "UInt8", "1: the person takes the judgement back"),
        Column("rule", LOW_CARDINALITY, "the rule whose verdict the person saw; empty where no rule had one"),
        Column("rule_owner", LOW_CARDINALITY, "owner of the failure by that rule"),
        Column("rule_class", LOW_CARDINALITY, "class of the failure by that rule"),
        Column("rule_outcome", LOW_CARDINALITY, "outcome of the episode without any judgement of a person"),
        Column("ingested_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""Judgements of people: a row is one version of what one person says about one target."""

"""Tables of canaries and shadows."""

from typing import Final

from .column import FLOAT_MAP, LOW_CARDINALITY, TIME_NS, TIME_US, Column, Table

CANARY_CALLS: Final = Table(
    "canary_calls",
    (
        Column("canary_id", "String", "the canary"),
        Column("call_id", "String", "unique id of the call"),
        Column("session", "String", "pseudonym of the session, which only the running canary can compute"),
        Column("arm", LOW_CARDINALITY, "candidate or champion: the version that the session belongs to"),
        Column("policy_version", LOW_CARDINALITY, "the version that answered, name@version; empty when none did"),
        Column("response_id", "String", "id of the chat completion"),
        Column("trace_id", "String", "from the caller's traceparent; empty without one"),
        Column("status", "UInt16", "status of the HTTP response; 499: the caller went away"),
        Column(
            "error",
            "String",
            "error of the arm's engine, also when the champion answered instead; empty without one",
        ),
        Column("prompt_tokens", "UInt32", "tokens of the prompt"),
        Column("response_tokens", "UInt32", "tokens of the response"),
        Column("started_at", TIME_NS, "start of the call"),
        Column("duration_ns", "UInt64", "nanoseconds from the request to the end of the response"),
        Column("ingested_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""Calls of the sessions that a canary compares."""

CANARY_SESSIONS: Final = Table(
    "canary_sessions",
    (
        Column("canary_id", "String", "the canary"),
        Column("position", "UInt64", "number of the session in the test, from 0"),
        Column("session", "String", "pseudonym of the session"),
        Column("arm", LOW_CARDINALITY, "`candidate` or `champion`"),
        Column("figures", FLOAT_MAP, "metric to value; metrics that the session does not have are missing"),
        Column("owners", "Array(LowCardinality(String))", "owners of the faults of its unrecovered failures"),
        Column("started_at", TIME_NS, "start of its first call"),
        Column("counted_at", TIME_US, "when a look counted the session", "DEFAULT"),
    ),
)
"""Sessions that a look at a canary has counted."""

SHADOW_ANSWERS: Final = Table(
    "shadow_answers",
    (
        Column("canary_id", "String", "the canary"),
        Column("response_id", "String", "id of the champion's answer"),
        Column("trace_id", "String", "from the caller's traceparent; empty without one"),
        Column("candidate", LOW_CARDINALITY, "name@version"),
        Column("champion", LOW_CARDINALITY, "name@version that answered the caller"),
        Column("answer", "String", "JSON: text and tool calls of the candidate; empty with an error"),
        Column("champion_answer", "String", "JSON: text and tool calls of the champion"),
        Column(
            "is_valid",
            "Bool",
            "the candidate's tool calls name tools of the request, with arguments that their schemas allow",
        ),
        Column("champion_is_valid", "Bool", "as `is_valid`, of the champion"),
        Column(
            "agreement",
            LOW_CARDINALITY,
            "same, same_tools (with other arguments) or different; empty with an error",
        ),
        Column("latency_s", "Float64", "seconds to the candidate's answer"),
        Column("champion_latency_s", "Float64", "seconds to the champion's answer"),
        Column("tokens", "UInt32", "tokens of the candidate's response"),
        Column("champion_tokens", "UInt32", "tokens of the champion's response"),
        Column("error", "String", "why the candidate did not answer; empty when it did"),
        Column("started_at", TIME_NS, "start of the call"),
        Column("ingested_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""Answers of a shadow candidate to copies of calls, beside the champion's."""

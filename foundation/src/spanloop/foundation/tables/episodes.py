"""Tables of what the pipeline makes of spans: episodes, their steps, token rows and failures."""

from typing import Final

from .column import FLOAT_MAP, LOW_CARDINALITY, STRING_MAP, TIME_NS, TIME_US, Column, Table

EPISODE_ID: Final = Column(
    "episode_id", "String", "`spanloop.episode.id` of the app, else the smallest trace id of the episode"
)
REVISION: Final = Column(
    "revision",
    "UInt64",
    "microseconds since the epoch of the newest member's ingestion; of one episode the highest counts",
)
CONVERTED_AT: Final = Column(
    "converted_at", TIME_US, "when the row was made; of equal rows the newest counts", "DEFAULT"
)
_TASK_ID: Final = Column(
    "task_id", "String", "`spanloop.task.id`: episodes of one task form a group; empty without one"
)
_GROUP_ID: Final = Column(
    "group_id", "String", "the task id, else a hash of the system prompt, the tools and the first user message"
)
_AGENT_NAME: Final = Column(
    "agent_name", LOW_CARDINALITY, "agent of the span itself, else the nearest agent above it; empty without one"
)
_TRACE_ID: Final = Column("trace_id", "String", "trace of the span")
_MODEL: Final = Column("model", LOW_CARDINALITY, "the model that answered, else the requested one")
_POLICY_VERSION: Final = Column(
    "policy_version", LOW_CARDINALITY, "`name@version` of the weights that answered; empty when not known"
)
_REWARD_BREAKDOWN: Final = Column(
    "reward_breakdown", FLOAT_MAP, "reward by name, and `name/component` for what a reward function adds up"
)
_IS_TERMINATED: Final = Column(
    "is_terminated", "Bool", "the end, reached: an answer that is whole, and whose tool calls all worked"
)
_IS_TRUNCATED: Final = Column(
    "is_truncated", "Bool", "the end, not reached: cut off, failed, or still waiting for a tool"
)
_PROMPT_TOKEN_IDS: Final = Column(
    "prompt_token_ids", "Array(UInt32)", "ids of the prompt as the engine saw it; empty when not known"
)
_UNTRAINABLE_REASON: Final = Column(
    "untrainable_reason",
    LOW_CARDINALITY,
    "empty where it may be trained on; else one of [these](transitions.md#why-a-step-is-not-trained-on)",
)
_TOOL_ERROR_COUNT: Final = Column("tool_error_count", "UInt32", "results that are errors")
_FAULT_OWNER: Final = Column(
    "fault_owner", LOW_CARDINALITY, "`policy`, `tool`, `environment`, `harness` or `user`; empty without a failure"
)
_STARTED_AT: Final = Column("started_at", TIME_NS, "start, UTC")
_DURATION_NS: Final = Column("duration_ns", "UInt64", "nanoseconds from the start to the end")

EPISODES: Final = Table(
    "episodes",
    (
        EPISODE_ID,
        REVISION,
        Column("is_deleted", "UInt8", "1: a tombstone, because the spans joined another episode", "DEFAULT"),
        Column(
            "converter_version",
            LOW_CARDINALITY,
            "version of the converters that made it; another version converts it again",
        ),
        Column("episode_key", "String", "`spanloop.episode.id`; empty without one"),
        _TASK_ID,
        _GROUP_ID,
        Column("session_id", "String", "smallest session id, else conversation id; empty without one"),
        Column("service_name", LOW_CARDINALITY, "`service.name` of the first step"),
        _AGENT_NAME,
        _MODEL,
        _POLICY_VERSION,
        Column("trace_ids", "Array(String)", "all of its traces, sorted"),
        _STARTED_AT,
        _DURATION_NS,
        Column("step_count", "UInt32", "model calls"),
        Column("span_count", "UInt32", "all spans"),
        Column("tool_call_count", "UInt32", "tool calls that the model made"),
        _TOOL_ERROR_COUNT,
        Column("input_tokens", "UInt64", "as the API counted them; 0 when not known"),
        Column("output_tokens", "UInt64", "as the API counted them; 0 when not known"),
        Column("outcome", LOW_CARDINALITY, "`success`, `failure` or `unknown`"),
        Column(
            "reward",
            "Nullable(Float64)",
            "the newest score named `reward`, else the mean over names, else of the steps; null without any",
        ),
        _REWARD_BREAKDOWN,
        _IS_TERMINATED,
        _IS_TRUNCATED,
        Column("error_class", LOW_CARDINALITY, "class of the failure that decided the episode; empty without one"),
        _FAULT_OWNER,
        Column(
            "marks",
            "Array(String)",
            "labels of scores named `spanloop.mark`, of one label the newest, tags of its spans, and verdicts and "
            "categories of judgements; sorted",
        ),
        CONVERTED_AT,
        Column("judgements", "Array(String)", "ids of the judgements of people that count in the revision; sorted"),
    ),
)
"""The newest revision of each episode."""

EPISODE_MESSAGES: Final = Table(
    "episode_messages",
    (
        EPISODE_ID,
        REVISION,
        Column("number", "UInt32", "from 0, in the order in which the episode's states show the messages"),
        Column("message", "String", "JSON: one canonical message"),
        CONVERTED_AT,
        Column("role", LOW_CARDINALITY, "role of the message", "MATERIALIZED"),
        Column("preview", "String", "the first 300 characters of its text", "MATERIALIZED"),
        Column("words", "String", "the message in lower case, for the index of words", "ALIAS"),
    ),
)
"""Messages, once for each revision of an episode; `TRANSITION_ROWS` refers to them by number."""

_STEP: Final = (
    Column("transition_id", "String", "episode id, slash, step"),
    EPISODE_ID,
    REVISION,
    Column("step", "UInt32", "from 0, in the order of the policy's actions"),
    _TASK_ID,
    _GROUP_ID,
    _AGENT_NAME,
    _TRACE_ID,
    Column("span_id", "String", "span of the model call"),
    Column("response_id", "String", "the provider's id of the answer; empty when not recorded"),
    _MODEL,
    _POLICY_VERSION,
    Column("state", "String", "JSON list of messages that the policy saw"),
    Column("tools", "String", "JSON list of `{name, description, parameters}` that it was offered"),
    Column(
        "action",
        "String",
        "JSON assistant message; without parts where the call gave none. Parallel tool calls are one action; of "
        "several choices the one that the program used, else the first "
        "([`ambiguous_choice`](transitions.md#why-a-step-is-not-trained-on))",
    ),
    Column(
        "tool_results",
        "String",
        "JSON list, one a call: `{tool_call_id, name, status, error_type, content, duration_ns, span_id}`",
    ),
    Column("next_state", "String", "state of the step that goes on from here; empty at the end"),
    Column("reward", "Nullable(Float64)", "the step's own, else the episode's; null without any"),
    _REWARD_BREAKDOWN,
    _IS_TERMINATED,
    _IS_TRUNCATED,
    Column(
        "finish_reason",
        LOW_CARDINALITY,
        "`stop`, `length`, `tool_call`, `content_filter`, `error`, another one as it came, or empty",
    ),
    Column(
        "sampling",
        STRING_MAP,
        "parameters that the capture has; temperature, top_p, max_tokens and seed are else the span's",
    ),
    Column("token_source", LOW_CARDINALITY, "`captured` by the gateway, from the `span`, or `none`"),
    Column("capture_join", LOW_CARDINALITY, "`response_id`, `traceparent`, `span` or empty: how the capture was found"),
    _PROMPT_TOKEN_IDS,
    Column("response_token_ids", "Array(UInt32)", "ids that were sampled; empty when not known"),
    Column(
        "logprobs",
        "Array(Float32)",
        "natural log-probabilities of what was sampled, parallel to `response_token_ids`; empty when not known",
    ),
    Column("is_trainable", "Bool", "whether the step may be trained on"),
    _UNTRAINABLE_REASON,
    Column(
        "untrainable_detail",
        "String",
        "span, attribute or generation, expected and got; or unused choices",
    ),
    _TOOL_ERROR_COUNT,
    Column("error_class", LOW_CARDINALITY, "class of the step's first failure; empty without one"),
    _FAULT_OWNER,
    Column("input_tokens", "UInt32", "as the API counted them; 0 when not known"),
    Column("output_tokens", "UInt32", "as the API counted them; 0 when not known"),
    _STARTED_AT,
    _DURATION_NS,
)

TRANSITIONS: Final = Table("transitions", (*_STEP, CONVERTED_AT))
"""A view: `TRANSITION_ROWS` with their messages and prompts."""

_STORED_OTHERWISE: Final = (
    Column(
        "state",
        "Array(UInt32)",
        "numbers of the messages that the policy saw, as ranges: from, to (exclusive), from, to, …",
    ),
    Column("next_state", "Array(UInt32)", "numbers of the messages of the next step, as in `state`; 0, 0 at the end"),
    Column("prompt_token_ids", "Array(UInt32)", "empty where `prompt_step` is another step"),
)

STEP_MEASURES: Final = (
    Column(
        "cached_tokens", "UInt32", "input tokens that the provider read from its cache; 0 when not known", "DEFAULT"
    ),
    Column(
        "first_token_ns",
        "Nullable(UInt64)",
        "nanoseconds from the start to the first token; null when the span does not record it",
        "DEFAULT",
    ),
    Column(
        "result_tools",
        "Array(LowCardinality(String))",
        "tools of the results, in order, then those that only spans name",
        "DEFAULT",
    ),
    Column(
        "result_durations_ns",
        "Array(UInt64)",
        "nanoseconds of each of `result_tools`; 0 where no span measured it",
        "DEFAULT",
    ),
)
"""Times and counts of a step that only its stored row has."""

TRANSITION_ROWS: Final = Table(
    "transition_rows",
    (
        *({column.name: column for column in _STEP} | {column.name: column for column in _STORED_OTHERWISE}).values(),
        Column("prompt_step", "UInt32", "the step whose `prompt_token_ids` begin with this step's"),
        Column("prompt_length", "UInt32", "number of this step's prompt tokens"),
        CONVERTED_AT,
        Column("preview", "String", "the first 300 characters of the action's text", "MATERIALIZED"),
        Column("tool_names", "Array(LowCardinality(String))", "tools that the action calls", "MATERIALIZED"),
        Column("words", "String", "the action in lower case, for the index of words", "ALIAS"),
        *STEP_MEASURES,
    ),
)
"""Steps; messages by number, and token ids of a prompt at the last step of its chain only."""

LEGACY_TRANSITIONS: Final = Table("legacy_transitions", TRANSITIONS.columns)
"""Always empty; the view `TRANSITIONS` reads it."""

REPLACED_REVISIONS: Final = Table(
    "replaced_revisions",
    (
        EPISODE_ID,
        REVISION,
        Column("replaced_at", TIME_US, "when a newer revision was written", "DEFAULT"),
    ),
)
"""Revisions with a successor; they are erased after a while, unless a manifest names them."""

PINNED_REVISIONS: Final = Table(
    "pinned_revisions",
    (
        EPISODE_ID,
        REVISION,
        Column("pinned_at", TIME_US, "when a manifest named the revision", "DEFAULT"),
    ),
)
"""Revisions that a dataset's manifest names."""

TRAJECTORIES: Final = Table(
    "trajectories",
    (
        Column("trajectory_id", "String", "episode id, slash, row number"),
        EPISODE_ID,
        REVISION,
        Column("row_number", "UInt32", "from 0, by first step"),
        _TASK_ID,
        _GROUP_ID,
        _AGENT_NAME,
        _POLICY_VERSION,
        Column("first_step", "UInt32", "first step in the row"),
        Column("last_step", "UInt32", "last step in the row"),
        Column(
            "row_start",
            LOW_CARDINALITY,
            "why the row begins where it does: one of [these](transitions.md#why-a-token-row-begins)",
        ),
        _PROMPT_TOKEN_IDS,
        Column(
            "response_token_ids",
            "Array(UInt32)",
            "everything after the first step's prompt: what was sampled, and what came between",
        ),
        Column(
            "loss_mask",
            "Array(UInt8)",
            "1 on tokens that were sampled in a step that may be trained on; parallel to `response_token_ids`",
        ),
        Column("logprobs", "Array(Float32)", "0 where the mask is 0; parallel to `response_token_ids`"),
        Column("sampled_steps", "Array(UInt32)", "the steps whose sampled tokens the row has, in order"),
        Column(
            "sampled_starts",
            "Array(UInt32)",
            "position in `response_token_ids` of the first token that each of `sampled_steps` sampled",
        ),
        Column("sampled_ends", "Array(UInt32)", "position behind the last token that each of `sampled_steps` sampled"),
        Column(
            "step_rewards",
            "Array(Nullable(Float64))",
            "reward of each of `sampled_steps` by scores of this call alone; null without one",
        ),
        Column(
            "tokenizers",
            "Array(LowCardinality(String))",
            "fingerprints of tokenizer and chat template that the captures of the row's steps carry; empty for a "
            "step without one",
        ),
        Column("reward", "Nullable(Float64)", "reward of the last step"),
        Column("is_trainable", "Bool", "whether any token may be trained on"),
        _UNTRAINABLE_REASON,
        CONVERTED_AT,
    ),
)
"""Token rows for the trainer: consecutive steps, merged where the prompt extends the tokens before it."""

FAILURES: Final = Table(
    "failures",
    (
        Column("failure_id", "String", "episode id, slash, number"),
        EPISODE_ID,
        REVISION,
        _TASK_ID,
        _TRACE_ID,
        Column("span_id", "String", "span that failed"),
        Column("step", "UInt32", "step that failed"),
        _AGENT_NAME,
        Column("tool_name", LOW_CARDINALITY, "the tool; empty where none is involved"),
        _MODEL,
        _POLICY_VERSION,
        Column(
            "error_class", LOW_CARDINALITY, "class of the failure, see [attribution](../explanation/attribution.md)"
        ),
        _FAULT_OWNER,
        Column("is_recovered", "Bool", "the episode went on and did not fail because of it"),
        Column("message", "String", "description for people"),
        Column("evidence", "String", "JSON: what the rule saw, and the `chain` from the root cause to the symptom"),
        Column("confidence", "Float32", "0 to 1: how sure the rule is"),
        Column("rule", LOW_CARDINALITY, "the rule that reported it"),
        Column("fingerprint", "String", "groups the same failure over episodes"),
        Column("occurred_at", TIME_NS, "when it happened, UTC"),
        CONVERTED_AT,
        Column("words", "String", "the message in lower case, for the index of words", "ALIAS"),
    ),
)
"""Failures and their owners."""

PIPELINE_STATE: Final = Table(
    "pipeline_state",
    (
        Column("name", "String", "name of the state: the watermark, the run lease, or an import"),
        Column("value", "String", "text or JSON"),
        Column("updated_at", TIME_US, "when it was written; the newest counts", "DEFAULT"),
    ),
)
"""How far the pipeline and imports have read; the last write counts."""

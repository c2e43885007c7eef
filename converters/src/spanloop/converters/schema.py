"""What each column of the converters' tables means; ``docs/reference/transitions.md`` is this module's output.

    python -m spanloop.converters.schema > docs/reference/transitions.md

Invariant: every column of ``frames`` is described here, and ``SCHEMA_VERSION`` goes up with any change of a name, a
type or a meaning. ``CONVERTER_VERSION`` goes up where the same columns get other values.
"""

from typing import Final

import polars as pl

from spanloop.converters.enums import RowStart, TokenSource, UntrainableReason

from . import frames

SCHEMA_VERSION: Final = "4"

_COMMON: Final = {
    "episode_id": "`spanloop.episode.id` of the app, else the smallest trace id of the episode",
    "revision": "microseconds since the epoch of the newest member's ingestion; of one episode the highest counts",
    "task_id": "`spanloop.task.id`: episodes of one task form a group; empty without one",
    "group_id": "the task id, else a hash of the system prompt, the tools and the first user message",
    "agent_name": "of the span itself, else of the nearest agent above it; empty without one",
    "model": "the model that answered, else the one asked for",
    "policy_version": "`name@version` of the weights that answered; empty when nobody said",
    "is_terminated": "the end, reached: an answer that is whole, and whose tool calls all worked",
    "is_truncated": "the end, not reached: cut off, failed, or still waiting for a tool",
    "fault_owner": "`policy`, `tool`, `environment`, `harness` or `user`; empty without a failure",
    "input_tokens": "as the API counted them; 0 when nobody did",
    "output_tokens": "as the API counted them; 0 when nobody did",
    "started_at": "start, UTC",
    "duration_ns": "nanoseconds from the start to the end",
    "reward_breakdown": "reward by name, and `name/component` for what a reward function adds up",
    "trace_id": "of the span",
    "row_number": "from 0, by first step",
    "prompt_token_ids": "ids of the prompt as the engine saw it; empty when not known",
    "response_token_ids": "ids that were sampled; empty when not known",
    "untrainable_reason": "empty where it may be trained on; else one of the reasons below",
}

_EPISODES: Final = {
    "converter_version": "of the converters that made it; another one converts it again",
    "episode_key": "`spanloop.episode.id`; empty without one",
    "session_id": "smallest session id, else conversation id; empty without one",
    "service_name": "`service.name` of the first step",
    "trace_ids": "all of its traces, sorted",
    "step_count": "model calls",
    "span_count": "all spans",
    "tool_call_count": "tool calls that were asked for",
    "tool_error_count": "results that are errors",
    "outcome": "`success`, `failure` or `unknown`",
    "reward": "the newest score named `reward`, else the mean over names, else of the steps; null without any",
    "error_class": "of the failure that decided the episode; empty without one",
    "marks": "labels of scores named `spanloop.mark`, of one label the newest, and tags of its spans; sorted",
}

_TRANSITIONS: Final = {
    "transition_id": "episode id, slash, step",
    "step": "from 0, in the order of the policy's actions",
    "span_id": "the model call's",
    "response_id": "the provider's id of the answer; empty when nobody recorded it",
    "state": "JSON list of messages that the policy saw",
    "tools": "JSON list of `{name, description, parameters}` that it was offered",
    "action": "JSON assistant message; without parts where the call gave none. Parallel tool calls are one action; "
    "of several choices the one that the program used, else the first: see `ambiguous_choice` below",
    "tool_results": "JSON list, one a call: `{tool_call_id, name, status, error_type, content, duration_ns, span_id}`",
    "next_state": "state of the step that goes on from here; empty at the end",
    "reward": "the step's own, else the episode's; null without any",
    "finish_reason": "`stop`, `length`, `tool_call`, `content_filter`, `error`, another one as it came, or empty",
    "sampling": "parameters that the capture has; temperature, top_p, max_tokens and seed are else the span's",
    "token_source": "where the ids come from, see below",
    "capture_join": "`response_id`, `traceparent`, `span` or empty: how the capture was found",
    "logprobs": "natural log-probabilities of what was sampled, parallel to `response_token_ids`; empty when not known",
    "is_trainable": "whether the step may be trained on",
    "untrainable_detail": "span, attribute or generation, what was expected and what was there; or unused choices",
    "tool_error_count": "results that are errors",
    "error_class": "of the step's first failure; empty without one",
}

_TRAJECTORIES: Final = {
    "trajectory_id": "episode id, slash, row number",
    "first_step": "first step in the row",
    "last_step": "last step in the row",
    "row_start": "why the row begins where it does, see below",
    "response_token_ids": "everything after the first step's prompt: what was sampled, and what came between",
    "loss_mask": "1 on tokens that were sampled in a step that may be trained on; parallel to `response_token_ids`",
    "logprobs": "0 where the mask is 0; parallel to `response_token_ids`",
    "sampled_steps": "the steps whose sampled tokens the row has, in order",
    "sampled_starts": "position in `response_token_ids` of the first token that each of `sampled_steps` sampled",
    "sampled_ends": "position behind the last token that each of `sampled_steps` sampled",
    "tokenizers": "fingerprints of tokenizer and chat template that the captures of the row's steps carry; empty for a "
    "step without one",
    "step_rewards": "reward of each of `sampled_steps` by scores of this call alone; null without one",
    "reward": "of the last step",
    "is_trainable": "whether any token may be trained on",
}

_FAILURES: Final = {
    "failure_id": "episode id, slash, number",
    "span_id": "the culprit's",
    "step": "the culprit's",
    "tool_name": "the tool's; empty where none is involved",
    "error_class": "see docs/explanation/attribution.md",
    "is_recovered": "the episode went on and did not fail because of it",
    "message": "for people",
    "evidence": "JSON: what the rule saw, and the `chain` from the root cause to the symptom",
    "confidence": "0 to 1",
    "rule": "which rule found it",
    "fingerprint": "groups the same failure over episodes",
    "occurred_at": "UTC",
}

_REJECTED: Final = {
    "span_id": "of the span; empty for a score that names none",
    "reason": "why the row became no transition",
    "detail": "what was expected and what was there",
}

TABLES: Final[dict[str, tuple[pl.Schema, dict[str, str]]]] = {
    "episodes": (frames.EPISODES, _COMMON | _EPISODES),
    "transitions": (frames.TRANSITIONS, _COMMON | _TRANSITIONS),
    "trajectories": (frames.TRAJECTORIES, _COMMON | _TRAJECTORIES),
    "failures": (frames.FAILURES, _COMMON | _FAILURES),
    "rejected": (frames.REJECTED, _COMMON | _REJECTED),
}
"""Table → its schema, and the meaning of its columns (and of others of the same name)."""

_REASONS: Final = {
    UntrainableReason.MISSING_CONTENT: "no messages in, or none out, or something is evidently missing in them",
    UntrainableReason.REDACTED_CONTENT: "a mark such as `__REDACTED__` stands for what was said",
    UntrainableReason.DROPPED_ATTRIBUTES: "the SDK's limit pushed attributes out",
    UntrainableReason.INCOMPLETE_STREAM: "the stream broke off",
    UntrainableReason.REQUEST_FAILED: "the call failed",
    UntrainableReason.AMBIGUOUS_CAPTURE: "several captures for one call, or several calls for one capture",
    UntrainableReason.TOKEN_MISMATCH: "ids, log-probabilities and token counts do not fit, or are no such thing",
    UntrainableReason.MISSING_LOGPROBS: "the span carries ids and no log-probabilities",
    UntrainableReason.MALFORMED_MESSAGES: "messages or tools that are none",
    UntrainableReason.ENVIRONMENT_FAULT: "the environment or the harness decided the episode",
    UntrainableReason.UNATTRIBUTED_FAILURE: "a failure decided the episode, and nothing shows whose fault it is",
    UntrainableReason.ABANDONED_ATTEMPT: "the program asked again, and went on from the later answer",
    UntrainableReason.AMBIGUOUS_CHOICE: "neither a later call nor a tool shows which of several choices (`n` > 1) the "
    "program used, or they show more than one; choices with equal text and tool calls count as one",
}

_SOURCES: Final = {
    TokenSource.CAPTURED: "captured by the gateway where they were sampled",
    TokenSource.SPAN: "attributes of the call's own span",
    TokenSource.NONE: "not known",
}

_STARTS: Final = {
    RowStart.FIRST: "the first step of its agent",
    RowStart.BRANCH: "it goes back to an earlier point: a retry, or another sample",
    RowStart.HISTORY_EDITED: "the program changed messages that the model had seen or said",
    RowStart.CONTEXT_TRUNCATED: "a stretch of the history is missing",
    RowStart.TEMPLATE_CHANGED: "the chat template wrote earlier messages otherwise",
    RowStart.RETOKENISED: "what was sampled came back as other ids",
    RowStart.PROMPT_DIVERGED: "another conversation of the same agent, or one that was not recorded",
    RowStart.NO_TOKENS: "the step before has no ids",
}


def markdown() -> str:
    """The documentation of all tables."""
    lines = [
        "# Tables of the converters, field by field",
        "",
        f"Schema version {SCHEMA_VERSION}. Types are polars' own, which are Arrow's. Written by",
        "`python -m spanloop.converters.schema`, from the module that the tests hold against the frames.",
    ]
    for table, (schema, meanings) in TABLES.items():
        lines += ["", f"## {table}", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {_type(dtype)} | {meanings[name]} |" for name, dtype in schema.items()]
    for title, words in (
        ("Why a step is not trained on", _REASONS),
        ("Where token ids come from", _SOURCES),
        ("Why a token row begins", _STARTS),
    ):
        lines += ["", f"## {title}", "", "| value | meaning |", "|---|---|"]
        lines += [f"| `{value}` | {meaning} |" for value, meaning in words.items()]
    return "\n".join(lines) + "\n"


def _type(dtype: pl.DataType) -> str:
    return str(dtype).replace("'", "").replace("|", "\\|")


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the document is the output

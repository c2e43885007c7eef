"""Closed vocabularies of episodes and transitions, stored in ClickHouse as their string values."""

from enum import StrEnum

from spanloop.foundation.tables.judged_values import FaultOwner

__all__ = ["FaultOwner", "RowStart", "TokenSource", "UntrainableReason"]


class TokenSource(StrEnum):
    """Where a transition's token ids come from."""

    CAPTURED = "captured"
    """Sampled by our gateway's engine and captured there: exact, with logprobs."""
    SPAN = "span"
    """Attributes of the call's own span, as vLLM, LiteLLM and Agent Lightning write them."""
    NONE = "none"
    """No ids are known: the transition can be read, and no job trains on it yet."""


class UntrainableReason(StrEnum):
    """Why a transition must not be trained on. The empty string in the store means that it may be trained on."""

    MISSING_CONTENT = "missing_content"
    REDACTED_CONTENT = "redacted_content"
    DROPPED_ATTRIBUTES = "dropped_attributes"
    INCOMPLETE_STREAM = "incomplete_stream"
    REQUEST_FAILED = "request_failed"
    AMBIGUOUS_CAPTURE = "ambiguous_capture"
    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 - model tokens, no secret
    MISSING_LOGPROBS = "missing_logprobs"
    MALFORMED_MESSAGES = "malformed_messages"
    ENVIRONMENT_FAULT = "environment_fault"
    UNATTRIBUTED_FAILURE = "unattributed_failure"
    ABANDONED_ATTEMPT = "abandoned_attempt"
    AMBIGUOUS_CHOICE = "ambiguous_choice"


class RowStart(StrEnum):
    """Why a merged trajectory row begins where it does."""

    FIRST = "first"
    """The first step of its agent in the episode."""
    BRANCH = "branch"
    """It continues from an earlier point: a retry, or another sample from the same prompt."""
    HISTORY_EDITED = "history_edited"
    """The program changed messages that the model had read or written."""
    CONTEXT_TRUNCATED = "context_truncated"
    """Part of the history is missing: it was cut to fit the context."""
    TEMPLATE_CHANGED = "template_changed"
    """Same messages; the chat template renders the earlier ones differently (without reasoning, or with a mark)."""
    RETOKENISED = "retokenised"
    """Same messages; the sampled text has other token ids in the next prompt."""
    PROMPT_DIVERGED = "prompt_diverged"
    """Another conversation of the same agent, or one whose messages were not recorded."""
    NO_TOKENS = "no_tokens"
    """The previous step has no captured tokens to extend."""

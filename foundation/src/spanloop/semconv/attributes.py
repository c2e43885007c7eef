"""Attribute names, each defined once.

Everything that OpenTelemetry has a name for uses that name (semantic conventions for generative AI, 1.37 and
later; legacy spellings live in the converters' dialects). Names of our own start with ``spanloop.``.
"""

from typing import Final

# --- OpenTelemetry: generative AI
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_P: Final = "gen_ai.request.top_p"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
GEN_AI_TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"

# --- OpenTelemetry: the carrier of rewards, a log event on /v1/logs
EVALUATION_EVENT_NAME: Final = "gen_ai.evaluation.result"
GEN_AI_EVALUATION_NAME: Final = "gen_ai.evaluation.name"
GEN_AI_EVALUATION_SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
GEN_AI_EVALUATION_SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
GEN_AI_EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"
MARK_NAME: Final = "spanloop.mark"
"""``gen_ai.evaluation.name`` of a mark: its label marks the episode, or takes the mark back when the value is 0."""

# --- OpenTelemetry: general
ERROR_TYPE: Final = "error.type"
EXCEPTION_EVENT_NAME: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
SESSION_ID: Final = "session.id"
SERVICE_NAME: Final = "service.name"

# --- Reinforcement learning: spans of training jobs; OpenTelemetry has no names for them yet
RL_JOB_ID: Final = "rl.job.id"
RL_JOB_KIND: Final = "rl.job.kind"
RL_JOB_ATTEMPT: Final = "rl.job.attempt"
RL_MODEL_BASE: Final = "rl.model.base"
RL_MODEL_VERSION: Final = "rl.model.version"
"""The version that a span registered or deployed, ``name@version``."""
RL_STEP: Final = "rl.step"
RL_LOSS: Final = "rl.loss"
RL_REWARD: Final = "rl.reward"
RL_KL: Final = "rl.kl"
RL_ENTROPY: Final = "rl.entropy"
RL_GRAD_NORM: Final = "rl.grad_norm"
RL_ROWS: Final = "rl.rows"
"""Rows of the exported dataset."""
RL_VERDICT: Final = "rl.verdict"
"""What the promotion rule said of the version: ``promoted``, ``kept`` or ``undecided``."""
RL_ENDED_EARLY: Final = "rl.ended_early"

# --- spanloop's own
SPANLOOP_TASK_ID: Final = "spanloop.task.id"
"""Identifies the task that an episode attempts; episodes of one task form a group."""

SPANLOOP_SCORE_ID: Final = "spanloop.score.id"
"""On an evaluation event: the key by which the score is corrected and deleted."""

SPANLOOP_SCORE_SOURCE: Final = "spanloop.score.source"
"""On an evaluation event: the source of the score."""

SPANLOOP_SCORE_DELETED: Final = "spanloop.score.deleted"
"""On an evaluation event: ``true`` deletes the score of that key."""

SPANLOOP_REDACTED: Final = "spanloop.redacted"
"""Which redaction rules changed a span, log record, resource or scope: names, separated by commas."""

SPANLOOP_EPISODE_ID: Final = "spanloop.episode.id"
"""Identifies one attempt. ``task()`` creates a new one on each entry."""

SPANLOOP_ENVIRONMENT_REWARD: Final = "spanloop.environment.reward"
"""On the span of a tool call: the reward that the environment gave for this step."""

SPANLOOP_ENVIRONMENT_DONE: Final = "spanloop.environment.done"
"""On the span of a tool call: whether the environment's episode ended with it."""

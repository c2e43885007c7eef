"""Tables of task runs and evaluations."""

from typing import Final

from .column import COUNT_MAP, LOW_CARDINALITY, TIME_NS, TIME_US, Column, Table

ATTEMPTS: Final = Table(
    "attempts",
    (
        Column("run_id", "String", "the task run"),
        Column("task_id", "String", "the task"),
        Column("task_digest", "String", "SHA-256 of the canonical JSON of the task's fields without its id, hex"),
        Column("attempt", "UInt32", "number of the attempt at the task in the run, from 1"),
        Column("model", "String", "name@version that the gateway served, or the name at another URL"),
        Column("episode_id", "String", "spanloop.episode.id of the attempt's spans; empty once it is forgotten"),
        Column(
            "trace_id",
            "String",
            "trace of the attempt's root span, where a Python callable was run; empty for a command, which may "
            "have several",
        ),
        Column(
            "state",
            LOW_CARDINALITY,
            "finished, crashed (another exit status than 0, or an exception) or timed_out",
        ),
        Column("exit_code", "Nullable(Int32)", "exit status of a command; negative: the signal that ended it"),
        Column(
            "is_success",
            "Nullable(Bool)",
            "the grader's verdict; null where nothing was graded, which counts as a failure in an evaluation",
        ),
        Column("reward", "Nullable(Float64)", "the grader's score; null where nothing was graded"),
        Column("grader", LOW_CARDINALITY, "name of the grader; empty without one"),
        Column("grader_version", LOW_CARDINALITY, "version of the grader; empty without one"),
        Column("evidence", "String", "JSON object of the verdict: what was compared"),
        Column("seed", "UInt64", "random seed that the attempt was given"),
        Column("started_at", TIME_US, "start of the attempt"),
        Column("duration_ms", "UInt64", "milliseconds from the start to the end"),
        Column("error", "String", "why it crashed, or why it could not be graded; the last lines of stderr"),
        Column(
            "interrupted_episode_ids",
            "Array(String)",
            "episodes of earlier starts of this attempt that ended with the runner or with the gateway; they "
            "count for nothing",
        ),
        Column("revision", "UInt64", "microseconds since the epoch when the row was made"),
    ),
)
"""Attempts of the task runner, one row for each run, task and attempt; the newest revision counts."""

EVALUATIONS: Final = Table(
    "evaluations",
    (
        Column("evaluation_id", "String", "name, colon, model"),
        Column(
            "revision",
            "UInt64",
            "microseconds since the epoch when it was computed; its evaluation_episodes have the same",
        ),
        Column("name", LOW_CARDINALITY, "name of the evaluation: the same for all models that are compared"),
        Column("model", LOW_CARDINALITY, "the policy version, name@version"),
        Column("task_set", "String", "description of the tasks"),
        Column("created_at", TIME_US, "when it was computed"),
        Column("started_at", TIME_NS, "start of the first episode that counts"),
        Column("episodes", "UInt32", "number of episodes that count"),
        Column("tasks", "UInt32", "number of tasks that these are attempts at"),
        Column("success", "Float64", "mean over tasks of the share of attempts that succeeded"),
        Column("success_low", "Float64", "lower end of the interval of `success`"),
        Column("success_high", "Float64", "upper end of the interval of `success`"),
        Column("mean_reward", "Float64", "mean over tasks of the mean reward of the attempts"),
        Column("reward_low", "Float64", "lower end of the interval of `mean_reward`"),
        Column("reward_high", "Float64", "upper end of the interval of `mean_reward`"),
        Column("left_out", COUNT_MAP, "episodes that do not count, by reason"),
        Column("states", COUNT_MAP, "attempts that count, by state"),
        Column(
            "training_tasks",
            "UInt32",
            "tasks that count although the version or an ancestor of it was trained on them",
        ),
        Column("level", "Float64", "level of the intervals: 0.95"),
        Column("resamples", "UInt32", "resamples of the bootstrap over tasks"),
        Column("seed", "UInt32", "random seed of the bootstrap"),
        Column("parameters", "String", "JSON: the arguments of the evaluation"),
        Column(
            "converter_version",
            LOW_CARDINALITY,
            "versions of the converters that made the episodes, joined by a comma",
        ),
    ),
)
"""One row for each evaluation and model; evaluating again replaces it."""

EVALUATION_EPISODES: Final = Table(
    "evaluation_episodes",
    (
        Column("evaluation_id", "String", "the evaluation: name, colon, model"),
        Column("evaluation_revision", "UInt64", "revision of the evaluation"),
        Column("episode_id", "String", "the episode; empty for an attempt without one"),
        Column("revision", "UInt64", "revision of the episode"),
        Column("task_id", "String", "the episode's task id, else its group id"),
        Column("run_id", "String", "the task run; empty for an episode that the task runner did not run"),
        Column("attempt", "UInt32", "number of the attempt at the task in the run"),
        Column(
            "state",
            LOW_CARDINALITY,
            "scored, or why it counts as a failure: crashed, timed_out, unscored, incomplete",
        ),
        Column("left_out", LOW_CARDINALITY, "why it does not count; empty when it does"),
        Column("is_training_task", "Bool", "the version or an ancestor of it was trained on the task"),
        Column("is_success", "Bool", "whether the attempt succeeded"),
        Column("reward", "Nullable(Float64)", "reward of the attempt; null without one"),
        Column("latency_s", "Nullable(Float64)", "from the attempt's begin to its end"),
        Column("tokens", "Nullable(Float64)", "prompt and completion tokens; null without an episode"),
        Column("steps", "Nullable(Float64)", "model calls that acted; null without an episode"),
        Column(
            "tool_selection",
            "Nullable(Float64)",
            "calls of the tools of the reference calls, by the larger number of both; null without reference calls",
        ),
        Column(
            "plan_success",
            "Nullable(Float64)",
            "1: it made all reference calls in their order; null without reference calls",
        ),
        Column(
            "step_efficiency",
            "Nullable(Float64)",
            "reference calls by the larger number of both where it succeeded, else 0; null without reference calls",
        ),
        Column("error_class", LOW_CARDINALITY, "class of the failure that decided the episode; empty without one"),
        Column(
            "error_classes",
            "Array(LowCardinality(String))",
            "classes of all failures that it did not recover from, each once",
        ),
        Column("tool_calls", COUNT_MAP, "tool name to how often it was called"),
        Column("failed_tool_calls", COUNT_MAP, "tool name to how many of its calls failed"),
    ),
)
"""The attempts of an evaluation, with those that do not count."""

EVALUATION_FIGURES: Final = Table(
    "evaluation_figures",
    (
        Column("evaluation_id", "String", "the evaluation: name, colon, model"),
        Column("evaluation_revision", "UInt64", "revision of the evaluation"),
        Column("position", "UInt32", "position of the figure in lists"),
        Column("figure", LOW_CARDINALITY, "a metric, pass@k, or error: and a failure class"),
        Column("value", "Float64", "mean over tasks"),
        Column("low", "Float64", "lower end of the interval"),
        Column("high", "Float64", "upper end of the interval"),
        Column("tasks", "UInt32", "number of tasks that have the figure"),
    ),
)
"""Means over tasks with their intervals."""

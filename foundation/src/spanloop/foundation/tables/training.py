"""Tables of training jobs: metrics, and what each step did with each row."""

from typing import Final

from .column import LOW_CARDINALITY, TIME_US, Column, Table

TRAINING_METRICS: Final = Table(
    "training_metrics",
    (
        Column("job_id", "String", "the training job"),
        Column("step", "UInt32", "optimiser step of the job, from 1"),
        Column("name", LOW_CARDINALITY, "name of the metric"),
        Column("value", "Float64", "value of the metric"),
        Column("recorded_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""Metrics of each optimiser step; a metric recorded again replaces the first."""

TRAINING_SAMPLES: Final = Table(
    "training_samples",
    (
        Column("job_id", "String", "the training job"),
        Column("attempt", "UInt64", "number of the job's attempt that trained on the row"),
        Column("step", "UInt32", "optimiser step of the job, from 1"),
        Column("sample", "UInt32", "position of the row in the job's dataset, from 0"),
        Column("kind", LOW_CARDINALITY, "kind of the job: sft, grpo, …"),
        Column("episode_id", "String", "the episode"),
        Column("revision", "UInt64", "revision of the episode"),
        Column("trajectory_id", "String", "episode id, slash, row number"),
        Column("row_number", "UInt32", "number of the token row in its episode"),
        Column(
            "trained_steps",
            "Array(UInt32)",
            "steps of the episode with a trained token in the row; empty in rows of earlier converters",
        ),
        Column("group_id", "String", "the task id, else a hash of the first prompt"),
        Column("policy_version", LOW_CARDINALITY, "the policy version that sampled the row"),
        Column("tokens", "UInt32", "trained tokens of the row; the means below are over these"),
        Column("prompt_tokens", "UInt32", "length of the row's prompt"),
        Column("response_tokens", "UInt32", "length of the row's response, tool results included"),
        Column(
            "distinct_2",
            "Nullable(Float64)",
            "share of distinct ones among the bigrams of the trained tokens; null with fewer than two",
        ),
        Column(
            "base_loss",
            "Nullable(Float64)",
            "mean negative log-probability of a trained token under the base, nats; null where no coreset needed it",
        ),
        Column(
            "pass_rate",
            "Nullable(Float64)",
            "share of the attempts of the row's group that succeed; null when not known",
        ),
        Column("weight", "Float64", "weight of the row in the loss", "DEFAULT"),
        Column("advantage", "Nullable(Float64)", "mean; null for kinds without advantages, as the next four"),
        Column("old_logprob", "Nullable(Float64)", "mean log-probability under the sampler, nats"),
        Column(
            "new_logprob",
            "Nullable(Float64)",
            "mean log-probability under the policy before the step's update, nats",
        ),
        Column("importance_mean", "Nullable(Float64)", "mean of exp(new - old) of each token, before truncation"),
        Column("importance_max", "Nullable(Float64)", "largest exp(new - old) of a token, before truncation"),
        Column(
            "loss",
            "Float64",
            "what the row adds to the step's loss; of sft the row's mean negative log-probability",
        ),
        Column("age_versions", "Nullable(UInt32)", "versions between the row's policy and the job's base"),
        Column(
            "age_days",
            "Nullable(Float64)",
            "days from the start of the row's episode to the export of the dataset",
        ),
        Column("recorded_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""What each step of a training job did with each row of its dataset."""

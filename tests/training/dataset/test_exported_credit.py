"""An export and a job mean the same by ``attributed``."""

import random
from typing import Any

import polars as pl
import pytest

from spanloop.converters.credit import CREDIT_METHODS, assign
from spanloop.training.recipes.choices import Credit

from ..selection_rows import row, rules, select

Row = dict[str, Any]
OWNERS = ("policy", "policy", "user", "tool", "environment", "harness", "unknown")
CLASSES = ("loop", "timeout", "wrong_answer")


def episode(rng: random.Random, name: str, group: str) -> Row:
    """One token row with two tokens for each step."""
    steps = list(range(rng.randint(1, 5)))
    faults = [
        (step, rng.choice(CLASSES), rng.choice(OWNERS), rng.randint(0, 1)) for step in steps if rng.random() < 0.4
    ]
    reward = rng.choice([0.0, 0.0, 0.5, 1.0])
    return row(
        name,
        group,
        reward,
        decided_by=rng.choice(["", *OWNERS]) if reward == 0 else "",
        fault_steps=[fault[0] for fault in faults],
        fault_classes=[fault[1] for fault in faults],
        fault_owners=[fault[2] for fault in faults],
        fault_is_recovered=[fault[3] for fault in faults],
        first_step=0,
        last_step=steps[-1],
        sampled_steps=steps,
        sampled_starts=[2 * step for step in steps],
        sampled_ends=[2 * step + 2 for step in steps],
        response_token_ids=[4] * 2 * len(steps),
        loss_mask=[1] * 2 * len(steps),
        logprobs=[-0.5] * 2 * len(steps),
    )


def transitions(rows: list[Row]) -> pl.DataFrame:
    """The same episodes as rows of the query ``export_transitions``."""
    names = ("fault_classes", "fault_owners", "fault_is_recovered")
    return pl.DataFrame(
        [
            {name: each[name] for name in ("episode_id", "group_id", "reward", "decided_by")}
            | {"step": step, "state": ""}
            | {
                name: [value for at, value in zip(each["fault_steps"], each[name], strict=True) if at == step]
                for name in names
            }
            for each in rows
            for step in each["sampled_steps"]
        ],
        schema_overrides={"fault_classes": pl.List(pl.String), "fault_owners": pl.List(pl.String)}
        | {"fault_is_recovered": pl.List(pl.UInt8)},
        infer_schema_length=None,
    )


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_an_export_credits_each_step_as_a_job_does(gamma: float) -> None:
    compared = 0
    for seed in range(40):
        rng = random.Random(seed)
        rows = [episode(rng, f"{group}-{number}", group) for group in "ab" for number in range(rng.randint(2, 6))]
        job = rules("grpo", credit=Credit.ATTRIBUTED, gamma=gamma)
        trained = {each["episode_id"]: each for each in select(rows, job).rows.iter_rows(named=True)}
        exported = assign(transitions(rows), CREDIT_METHODS["attributed"], gamma=gamma)
        for each in exported.iter_rows(named=True):
            if (of_job := trained.get(each["episode_id"])) is not None:
                expected = of_job["advantages"][2 * each["step"] : 2 * each["step"] + 2]
                assert [each["credit"]] * 2 == pytest.approx(expected, abs=1e-5), (seed, each)
                assert each["is_credit_masked"] == (of_job["loss_mask"][2 * each["step"]] == 0)
                compared += 1
    assert compared > 500

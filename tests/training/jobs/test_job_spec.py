"""Test that a valid job spec has only settings that its kind uses."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spanloop.training.run.job_api import JobSpec
from spanloop.training.spec.flat_settings import flat_settings

from ..recipe_kinds import KINDS, POLICY_GRADIENTS, flat_value

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
specs = st.builds(
    JobSpec.of,
    kind=st.just("grpo"),
    base=st.one_of(names, st.builds("{}@v{}".format, names, st.integers(1, 999))),
    name=st.one_of(st.just(""), names),
    learning_rate=st.floats(1e-9, 1e-2),
    steps=st.integers(1, 10_000),
    seed=st.integers(0, 2**31 - 1),
    deploy=st.booleans(),
    pause_serving=st.booleans(),
    task_prefix=st.text(max_size=256),
    task_ids=st.lists(st.text(), max_size=3).map(tuple),
    since=st.one_of(st.none(), st.datetimes(timezones=st.just(UTC))),
)


@given(specs)
def test_a_spec_survives_json(spec: JobSpec) -> None:
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rat": 1e-3},
        {"base": "tiny@1"},
        {"base": "../tiny"},
        {"base": "tiny@v0"},
        {"base": ""},
        {"name": "a/b"},
        {"name": ".hidden"},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"steps": 0},
        {"group_size": 1},
        {"seed": -1},
        {"kind": "unknown"},
        {"policy_version": "tiny"},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001 - the point
        {"min_reward": 0.5},
    ],
)
def test_what_is_wrong_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate({"kind": "grpo", "base": "tiny@v1"} | wrong)


@pytest.mark.parametrize(("setting", "value"), [("epochs", 2), ("credit", "attributed")])
def test_settings_of_grpo_are_refused_for_sft(setting: str, value: object) -> None:
    with pytest.raises(ValidationError, match=rf"{setting}: a .*\bgrpo\b.* setting that sft does not use"):
        JobSpec.model_validate({"kind": "sft", "base": "tiny@v1", setting: value})
    assert flat_value(JobSpec.of(kind="sft", base="tiny@v1", min_reward=0.5), "min_reward") == 0.5


def test_each_kind_has_a_learning_rate_of_its_own() -> None:
    rates = {kind: JobSpec.of(kind=kind, base="tiny").optimiser.learning_rate for kind in KINDS}
    expected = {"sft": 1e-5, "dpo": 5e-7}
    assert rates == {kind: expected.get(kind, 1e-6) for kind in KINDS}
    assert JobSpec.of(kind="sft", base="tiny", learning_rate=1e-3).optimiser.learning_rate == 1e-3


def test_each_recipe_has_the_loss_and_the_kl_term_of_its_paper() -> None:
    specs = {kind: flat_settings(JobSpec.of(kind=kind, base="tiny")) for kind in POLICY_GRADIENTS}
    assert {kind: (str(spec["loss_aggregation"]), spec["kl_coefficient"]) for kind, spec in specs.items()} == {
        "dr_grpo": ("seq-mean-token-sum-norm", 0),
        "grpo": ("seq-mean-token-mean", 0.04),
        "rloo": ("seq-mean-token-sum", 0),
        "gspo": ("seq-mean-token-mean", 0),
        "reinforce_plus_plus": ("token-mean", 0),
        "ppo": ("token-mean", 0),
    }
    assert JobSpec.of(base="tiny").kind == "dr_grpo"


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [("sft", "credit", "process"), ("grpo", "gae_lambda", 0.9), ("rloo", "critic_learning_rate", 1e-4)],
)
def test_a_recipe_refuses_what_it_does_not_use(kind: str, setting: str, value: object) -> None:
    with pytest.raises(ValidationError, match=f"{setting}: a .* setting that {kind} does not use"):
        JobSpec.model_validate({"kind": kind, "base": "tiny", setting: value})


def test_ppo_has_process_credit_and_no_attributed_one() -> None:
    assert flat_value(JobSpec.of(kind="ppo", base="tiny", credit="process"), "credit") == "process"
    with pytest.raises(ValidationError, match="credit: attributed weighs stored advantages, which ppo does not have"):
        JobSpec.model_validate({"kind": "ppo", "base": "tiny", "credit": "attributed"})
    with pytest.raises(ValidationError, match=r"credit: process_grpo normalises scores by .* take process"):
        JobSpec.model_validate({"kind": "ppo", "base": "tiny", "credit": "process_grpo"})


@pytest.mark.parametrize("credit", ["process", "attributed"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_two_credits_have_a_discount(credit: str, gamma: float) -> None:
    assert flat_value(JobSpec.of(base="tiny", credit=credit, gamma=gamma), "gamma") == gamma
    assert flat_value(JobSpec.of(base="tiny", credit=credit), "gamma") == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.5}, "gamma: a setting of the credits process and attributed; broadcast discounts nothing"),
        ({"credit": "process_grpo", "gamma": 0.5}, "gamma: a setting of the credits .*; process_grpo discounts"),
        ({"credit": "process", "kind": "ppo", "gamma": 0.5}, "gamma: a .* setting that ppo does not use"),
        ({"kind": "sft", "gamma": 0.5}, "gamma: a .* setting that sft does not use"),
        ({"kind": "dpo", "gamma": 0.5}, "gamma: a .* setting that dpo does not use"),
        ({"credit": "process", "gamma": 1.1}, "less than or equal to 1"),
        ({"credit": "process", "gamma": -0.1}, "greater than or equal to 0"),
        ({"credit": "process", "gamma": float("nan")}, "finite|greater than or equal"),
    ],
)
def test_a_discount_that_does_nothing_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        JobSpec.model_validate({"base": "tiny"} | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "sft", "min_reward": 1, "max_reward": 0}, "min_reward: 1 is above the max_reward of 0"),
        ({"since": "2026-11-02T00:00:00Z", "until": "2026-11-01T00:00:00Z"}, "since: .* is not before until"),
    ],
)
def test_limits_that_leave_nothing_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        JobSpec.model_validate({"base": "tiny"} | settings)


def test_sft_imitates_successful_episodes_unless_told_otherwise() -> None:
    assert flat_value(JobSpec.of(kind="sft", base="tiny"), "outcomes") == "successful"
    assert flat_value(JobSpec.of(kind="sft", base="tiny", outcomes="all"), "outcomes") == "all"
    with pytest.raises(ValidationError, match="outcomes: a sft setting"):
        JobSpec.model_validate({"kind": "grpo", "base": "tiny", "outcomes": "all"})


def test_the_result_takes_the_bases_name_unless_it_has_one() -> None:
    assert JobSpec.of(kind="grpo", base="tiny@v3").result_name == "tiny"
    assert JobSpec.of(kind="grpo", base="tiny@v3", name="better").result_name == "better"


def test_a_spec_is_frozen(spec: JobSpec) -> None:
    with pytest.raises(ValidationError):
        spec.optimiser.steps = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_since_is_given_in_utc() -> None:
    since = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert JobSpec.of(kind="grpo", base="tiny", since=since).episodes.since_utc == datetime(2026, 1, 1, tzinfo=UTC)


def test_every_field_says_what_it_is() -> None:
    assert [name for name, field in JobSpec.model_fields.items() if not field.description] == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"backbone": "debug", "ray_address": "10.0.0.1:6379"}, "the debug backbone uses no Ray cluster"),
        ({"backbone": "debug", "gpus_per_node": 2}, "gpus_per_node: the debug backbone is one process"),
        ({"backbone": "debug", "nodes": 2}, "nodes: the debug backbone is one process"),
        ({"nodes": 2}, "nodes: a job on several nodes needs ray_address"),
        ({"kind": "sft", "batch_groups": 9, "gpus_per_node": 2}, "does not divide by 2 ranks"),
    ],
)
def test_a_backbone_and_ranks_that_do_not_fit_are_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        JobSpec.model_validate({"base": "m", **settings})


def test_a_job_deploys_by_the_rule_or_always_but_not_both() -> None:
    assert JobSpec.of(kind="sft", base="tiny@champion", deploy=True).base == "tiny@champion"
    with pytest.raises(ValidationError, match="deploy_always: deploy asks the promotion rule"):
        JobSpec.of(kind="sft", base="tiny", deploy=True, deploy_always=True)

"""Test that a valid job spec has only settings that its kind uses."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spanloop.training.jobs import JobKind, JobSpec

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
specs = st.builds(
    JobSpec,
    kind=st.just(JobKind.GRPO),
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
    with pytest.raises(ValidationError, match=f"{setting}: a grpo setting"):
        JobSpec.model_validate({"kind": "sft", "base": "tiny@v1", setting: value})
    assert JobSpec(kind=JobKind.SFT, base="tiny@v1", min_reward=0.5).min_reward == 0.5


def test_each_kind_has_a_learning_rate_of_its_own() -> None:
    rates = {kind: JobSpec(kind=kind, base="tiny").learning_rate for kind in JobKind}
    assert rates == {JobKind.SFT: 1e-5, JobKind.GRPO: 1e-6, JobKind.DPO: 5e-7}
    assert JobSpec(kind=JobKind.SFT, base="tiny", learning_rate=1e-3).learning_rate == 1e-3


def test_sft_imitates_successful_episodes_unless_told_otherwise() -> None:
    assert JobSpec(kind=JobKind.SFT, base="tiny").outcomes == "successful"
    assert JobSpec.model_validate({"kind": "sft", "base": "tiny", "outcomes": "all"}).outcomes == "all"
    with pytest.raises(ValidationError, match="outcomes: a sft setting"):
        JobSpec.model_validate({"kind": "grpo", "base": "tiny", "outcomes": "all"})


def test_the_result_takes_the_bases_name_unless_it_has_one() -> None:
    assert JobSpec(kind=JobKind.GRPO, base="tiny@v3").result_name == "tiny"
    assert JobSpec(kind=JobKind.GRPO, base="tiny@v3", name="better").result_name == "better"


def test_a_spec_is_frozen(spec: JobSpec) -> None:
    with pytest.raises(ValidationError):
        spec.steps = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_since_is_given_in_utc() -> None:
    since = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert JobSpec(kind=JobKind.GRPO, base="tiny", since=since).since_utc == datetime(2026, 1, 1, tzinfo=UTC)


def test_every_field_says_what_it_is() -> None:
    assert [name for name, field in JobSpec.model_fields.items() if not field.description] == []

import random
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.foundation.errors import JobError
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.named_queries import named_query, query_names
from spanloop.training.dataset.export import COLUMNS, QUERY, TokenizerOf, export_dataset, query_parameters
from spanloop.training.dataset.manifest import DATA_NAME, MANIFEST_NAME, Manifest, load_manifest
from spanloop.training.models.base_model import BaseModelFacts, Training, read_base_model
from spanloop.training.recipes.choices import Credit, Outcomes
from spanloop.training.spec.job_spec import JobSpec

from ..training_seeding import (
    REVISION,
    STARTED_AT,
    episode_row,
    failure_row,
    insert,
    seed_groups,
    trajectory,
    transition_row,
)

GRPO = JobSpec.of(kind="dr_grpo", base="tiny")
SFT = JobSpec.of(kind="sft", base="tiny")


@pytest.fixture
def base(tiny_model: Path) -> BaseModelFacts:
    return read_base_model("tiny@v1", tiny_model)


def known(base: BaseModelFacts) -> TokenizerOf:
    """A registry that has the base model and nothing else."""
    return {base.reference: base.tokenizer}.get


def test_an_export_is_pinned_and_counted(
    store: Store, connection: Connection, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    manifest = export_dataset(store, GRPO, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    assert (manifest.groups.accepted, manifest.groups.rejected) == (4, {"reward_constant": 1})
    assert (manifest.episodes.accepted, manifest.episodes.rejected) == (16, {"reward_constant": 4})
    assert (manifest.rows.accepted, manifest.rows.rejected) == (24, {"reward_constant": 6})
    assert {episode.revision for episode in manifest.pinned} == {REVISION}
    assert len(manifest.pinned) == 16
    pinned = connection.query("SELECT episode_id, revision FROM pinned_revisions ORDER BY ALL", doing="looking")
    assert pinned.rows() == [(episode.episode_id, episode.revision) for episode in manifest.pinned]
    data = pl.read_parquet(tmp_path / DATA_NAME)
    assert tuple(data.columns) == COLUMNS
    assert data.height == 24
    assert load_manifest(tmp_path) == manifest


@pytest.mark.parametrize("spec", [GRPO, SFT])
def test_the_answers_of_a_shadow_are_in_no_dataset(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path, spec: JobSpec
) -> None:
    seed_groups(store, tiny_model, groups=2)

    def export(name: str) -> tuple[Manifest, pl.DataFrame]:
        folder = tmp_path / name
        folder.mkdir()
        manifest = export_dataset(store, spec, base, tokenizer_of=known(base), job_id="j", folder=folder)
        return manifest, pl.read_parquet(folder / DATA_NAME)

    before, rows_before = export("before")
    answers: list[dict[str, object]] = [
        {
            "canary_id": "c",
            "response_id": f"response {number}",
            "trace_id": episode.episode_id,
            "candidate": "tiny@v2",
            "champion": "tiny@v1",
            "answer": '{"text": "shadow", "tool_calls": []}',
            "agreement": "different",
            "started_at": STARTED_AT,
        }
        for number, episode in enumerate(before.pinned)
    ]
    insert(store, "shadow_answers", answers)
    after, rows_after = export("after")
    assert_frame_equal(rows_after, rows_before)
    assert after.pinned == before.pinned
    readers = {name for name in query_names() if "shadow_answers" in named_query(name).sql}
    assert readers == {"canary_shadow", "store_forget_shadow_answers"}, "nothing that trains or converts reads them"


def test_sft_takes_the_outcome_of_an_episode_from_the_store(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=1)
    successful = export_dataset(store, SFT, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    assert successful.rows.rejected == {"not_successful": 2}
    everything = export_dataset(
        store,
        SFT.changed(outcomes=Outcomes.ALL),
        base,
        tokenizer_of=known(base),
        job_id="j",
        folder=tmp_path,
    )
    assert everything.rows.rejected == {}
    insert(store, "episodes", [episode_row("unscored", "u", 0, None)])
    insert(
        store, "trajectories",
        [trajectory(tiny_model, random.Random(0), episode="unscored", group="u", row_number=0, prompt=[5, 6])],
    )  # fmt: skip
    with pytest.raises(JobError, match="no episode with usable rows was successful") as caught:
        export_dataset(
            store,
            SFT.changed(task_ids=("u",)),
            base,
            tokenizer_of=known(base),
            job_id="j",
            folder=tmp_path,
        )
    assert "--outcomes all" in caught.value.next_step
    spec = SFT.changed(min_reward=5.0)
    with pytest.raises(JobError, match="no episode with usable rows has the min_reward") as caught:
        export_dataset(store, spec, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    assert "starts from demonstrations" in caught.value.next_step


def test_a_job_selects_episodes_by_their_marks(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    marks: dict[str, list[str]] = {"a": ["good"], "b": ["good", "holdout"], "c": []}
    rows = [episode_row(name, name, number, 1.0) | {"marks": marks[name]} for number, name in enumerate(marks)]
    insert(store, "episodes", rows)
    rng = random.Random(0)
    insert(
        store, "trajectories",
        [trajectory(tiny_model, rng, episode=name, group=name, row_number=0, prompt=[5, 6]) for name in marks],
    )  # fmt: skip

    def episodes(**settings: object) -> list[str]:
        spec = SFT.changed(**settings)
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        manifest = export_dataset(store, spec, base, tokenizer_of=known(base), job_id="j", folder=folder)
        return [episode.episode_id for episode in manifest.pinned]

    assert episodes() == ["a", "b", "c"]
    assert episodes(marks=("good", "other")) == ["a", "b"]
    assert episodes(marks=("good",), without_marks=("holdout",)) == ["a"]
    assert episodes(without_marks=("good",)) == ["c"]


def trained(store: Store, step: int, episodes: list[str]) -> None:
    """The job ``before`` trained on ``episodes`` in ``step``."""
    common: dict[str, object] = {"job_id": "before", "attempt": 1, "step": step}
    rows = [common | {"sample": number, "episode_id": episode} for number, episode in enumerate(episodes)]
    insert(store, "training_samples", rows)


def test_a_replay_ratio_of_zero_trains_on_new_episodes_only(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    learned = base._replace(trainings=(Training("before", 2),))
    spec = SFT.changed(outcomes=Outcomes.ALL, replay_ratio=0.0)

    def export() -> Manifest:
        return export_dataset(store, spec, learned, tokenizer_of=known(base), job_id="j", folder=tmp_path)

    assert export().rows.rejected == {}
    old = sorted(pl.read_parquet(tmp_path / DATA_NAME)["episode_id"].unique())
    after_the_checkpoint = old.pop()
    trained(store, 1, old)
    trained(store, 3, [after_the_checkpoint])
    manifest = export()
    assert [episode.episode_id for episode in manifest.pinned] == [after_the_checkpoint]
    assert manifest.episodes.rejected == {"over_replay_ratio": len(old)}
    assert f"replay kept 1 of {len(old) + 1} episodes (0 of " in manifest.summary
    trained(store, 2, [after_the_checkpoint])
    with pytest.raises(JobError, match="learned from all of its episodes before") as caught:
        export()
    assert "Collect new episodes" in caught.value.next_step


def test_rows_of_an_old_version_are_rejected_with_a_reason(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=1)
    newer = base._replace(reference="tiny@v3", lineage=("tiny@v3", "tiny@v2", "tiny@v1"))
    kept = export_dataset(store, GRPO, newer, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    assert kept.rows.accepted == 6
    assert pl.read_parquet(tmp_path / DATA_NAME)["age_versions"].to_list() == [2] * 6
    with pytest.raises(JobError, match="row_too_old 12"):
        export_dataset(
            store,
            GRPO.changed(max_age_versions=1),
            newer,
            tokenizer_of=known(base),
            job_id="k",
            folder=tmp_path,
        )


@pytest.mark.parametrize(
    ("sampling", "temperature", "refused"),
    [
        ({}, 1.0, {}),
        ({"temperature": "0.7", "max_tokens": "64"}, 0.7, {}),
        ({"temperature": "0"}, None, {"greedy_sampling": 6}),
        ({"top_p": "0.9"}, None, {"truncated_sampling": 6, "constrained by: top_p": 6}),
        (
            {"strict_tools": '["price"]', "new": "1"},
            None,
            {"truncated_sampling": 6, "constrained by: new 6, strict_tools": 6},
        ),
    ],
)
def test_a_policy_gradient_takes_the_sampling_of_a_row_s_steps_from_the_store(
    *,
    store: Store,
    tiny_model: Path,
    base: BaseModelFacts,
    tmp_path: Path,
    sampling: dict[str, str],
    temperature: float | None,
    refused: dict[str, int],
) -> None:
    seed_groups(store, tiny_model, groups=1, sampling=sampling)
    only_varied = GRPO.changed(task_ids=("task-0",))
    if refused:
        with pytest.raises(JobError, match="cannot be recomputed") as caught:
            export_dataset(store, only_varied, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
        assert all(f"{reason} {count}" in str(caught.value) for reason, count in refused.items())
    else:
        manifest = export_dataset(store, only_varied, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
        assert (manifest.temperature, manifest.rows.rejected) == (temperature, refused)
    imitation = only_varied.changed(kind="sft", outcomes=Outcomes.ALL)
    manifest = export_dataset(store, imitation, base, tokenizer_of=known(base), job_id="k", folder=tmp_path)
    assert (manifest.temperature, manifest.rows.accepted) == (None, 6)


@pytest.mark.parametrize("steps", [[], [1, 3]])
def test_a_row_is_sampled_as_its_own_agent_s_steps_are(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path, steps: list[int]
) -> None:
    positions: dict[str, object] = {
        "sampled_steps": steps,
        "sampled_starts": [0, 7][: len(steps)],
        "sampled_ends": [4, 12][: len(steps)],
    }
    warm, greedy = {"temperature": "0.7"}, {"temperature": "0"}
    for number in range(2):
        episode = f"e-{number}"
        row = trajectory(tiny_model, random.Random(0), episode=episode, group="g", row_number=0, prompt=[5, 6])
        insert(store, "episodes", [episode_row(episode, "g", number, float(number))])
        insert(store, "trajectories", [row | {"first_step": 1, "last_step": 3} | positions])
        told = [transition_row(episode, "g", step, warm if 1 <= step <= 3 else greedy) for step in range(5)]
        told[2] |= {"agent_name": "critic", "sampling": transition_row(episode, "g", 2, greedy)["sampling"]}
        insert(store, "transitions", told)
    manifest = export_dataset(store, GRPO, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    assert (manifest.temperature, manifest.rows.accepted) == (0.7, 2)


def test_new_data_does_not_change_what_a_retry_trains_on(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    manifest = export_dataset(store, GRPO, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    newer = episode_row("task-0-episode-0", "task-0", 0, 1.0) | {"revision": REVISION + 1, "is_deleted": 1}
    insert(store, "episodes", [newer])
    assert load_manifest(tmp_path) == manifest
    again = tmp_path / "again"
    again.mkdir()
    later = export_dataset(store, GRPO, base, tokenizer_of=known(base), job_id="k", folder=again)
    assert later.episodes.accepted == 15
    assert later.data_sha256 != manifest.data_sha256


def test_a_revision_that_is_not_current_is_left_out(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=1)
    insert(store, "episodes", [episode_row("task-0-episode-0", "task-0", 0, 0.0) | {"revision": REVISION + 1}])
    manifest = export_dataset(store, GRPO, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    assert "task-0-episode-0" not in {episode.episode_id for episode in manifest.pinned}
    assert manifest.rows.rejected["no_trajectory"] == 1


@pytest.mark.parametrize(
    ("filters", "episodes"),
    [
        ({"task_ids": ("task-1", "task-2")}, 8),
        ({"task_prefix": "task-2"}, 4),
        ({"task_ids": ("task-1", "task-2"), "task_prefix": "task-1"}, 4),
        ({"since": STARTED_AT + timedelta(seconds=2)}, 8),
        ({"policy_version": "tiny@v1"}, 16),
        ({"max_episodes": 10}, 8),
    ],
)
def test_filters_of_the_spec(
    *,
    store: Store,
    tiny_model: Path,
    base: BaseModelFacts,
    tmp_path: Path,
    filters: dict[str, object],
    episodes: int,
) -> None:
    seed_groups(store, tiny_model)
    spec = GRPO.changed(**filters)
    assert (
        export_dataset(store, spec, base, tokenizer_of=known(base), job_id="j", folder=tmp_path).episodes.accepted
        == episodes
    )


def test_nothing_to_train_on_says_what_was_refused_and_leaves_no_manifest(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=0)
    with pytest.raises(JobError, match="reward never varies") as caught:
        export_dataset(store, GRPO, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    assert "reward_constant 6" in str(caught.value)
    assert "next: " in str(caught.value)
    assert not (tmp_path / MANIFEST_NAME).exists()


def test_filters_that_match_nothing_say_so(store: Store, base: BaseModelFacts, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no episode matches"):
        export_dataset(store, GRPO, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)


def test_a_data_file_that_changed_is_refused(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=1)
    export_dataset(store, GRPO, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    with (tmp_path / DATA_NAME).open("ab") as file:
        file.write(b"x")
    with pytest.raises(JobError, match="not what its manifest describes"):
        load_manifest(tmp_path)


def seed_pair(store: Store, model: Path, *, versions: tuple[str, str] = ("tiny@v1", "tiny@v1")) -> None:
    """A group of a bad episode ``e-0`` and a good one ``e-1``, each one row of the steps 0 and 1."""
    for number in range(2):
        episode = f"e-{number}"
        row = trajectory(model, random.Random(0), episode=episode, group="g", row_number=0, prompt=[5, 6])
        length = len(row["response_token_ids"])  # type: ignore[arg-type]
        steps = {"last_step": 1, "sampled_steps": [0, 1], "sampled_starts": [0, 7], "sampled_ends": [4, length]}
        insert(store, "episodes", [episode_row(episode, "g", number, float(number))])
        insert(store, "trajectories", [row | steps | {"policy_version": versions[0]}])
        transitions = [transition_row(episode, "g", step, {}) for step in range(2)]
        insert(
            store,
            "transitions",
            [each | {"policy_version": version} for each, version in zip(transitions, versions, strict=True)],
        )


def test_failures_of_the_store_reach_the_tokens(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_pair(store, tiny_model)
    insert(store, "failures", [failure_row("e-0", 1, "policy"), failure_row("e-1", 0, "tool", is_recovered=True)])
    spec = GRPO.changed(credit=Credit.ATTRIBUTED)
    manifest = export_dataset(store, spec, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    bad, good = pl.read_parquet(tmp_path / DATA_NAME).sort("episode_id").iter_rows(named=True)
    tail = len(bad["loss_mask"]) - 7
    assert (bad["loss_mask"], bad["advantages"]) == ([1] * 4 + [0] * 3 + [1] * tail, [0.0] * 7 + [-0.5] * tail)
    assert (good["loss_mask"], good["advantages"]) == ([0] * 7 + [1] * tail, [0.0] * 7 + [0.5] * tail)
    assert (manifest.masked_steps, manifest.masked_tokens) == (1, 4)
    assert "masked steps: 1 (4 tokens)" in manifest.summary


def test_an_episode_that_a_tool_made_fail_is_nobody_s_lesson(
    store: Store, tiny_model: Path, base: BaseModelFacts, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=1)
    insert(store, "episodes", [episode_row("task-0-episode-0", "task-0", 0, 0.0) | {"fault_owner": "tool"}])
    spec = GRPO.changed(credit=Credit.ATTRIBUTED)
    manifest = export_dataset(store, spec, base, tokenizer_of=known(base), job_id="j", folder=tmp_path)
    assert manifest.episodes.rejected == {"not_the_policys_fault": 1, "reward_constant": 4}


@pytest.mark.parametrize(
    ("versions", "asked", "reason"),
    [
        (("tiny@v1", "tiny@v1"), "tiny@v1", ""),
        (("tiny@v1", "tiny@v2"), "tiny@v1", "other_policy_version"),
        (("tiny@v1", "tiny@v2"), "", "unknown_tokenizer"),
        (("tiny@v1", ""), "", "unknown_tokenizer"),
        (("tiny@v1", "other@v1"), "", "other_tokenizer"),
    ],
)
def test_rows_are_selected_by_the_version_that_sampled_each_step(
    *,
    store: Store,
    tiny_model: Path,
    base: BaseModelFacts,
    tmp_path: Path,
    versions: tuple[str, str],
    asked: str,
    reason: str,
) -> None:
    seed_pair(store, tiny_model, versions=versions)
    registered = {base.reference: base.tokenizer, "other@v1": "another fingerprint"}.get
    spec = GRPO.changed(policy_version=asked)
    if not reason:
        manifest = export_dataset(store, spec, base, tokenizer_of=registered, job_id="j", folder=tmp_path)
        assert manifest.rows.accepted == 2
        return
    with pytest.raises(JobError, match=r"this model's family|by tiny@v1 alone") as caught:
        export_dataset(store, spec, base, tokenizer_of=registered, job_id="j", folder=tmp_path)
    assert f"{reason} 2" in str(caught.value)


def selected_episodes(store: Store, **settings: object) -> set[str]:
    """The episodes that a job asks for, trained on or rejected."""
    spec = GRPO.changed(**settings)
    times = {"since": STARTED_AT, "until": spec.episodes.until_utc or FUTURE, "ended_before": FUTURE}
    frame = store.query(QUERY, **query_parameters(spec) | times)
    return set(frame["episode_id"].to_list())


FUTURE = STARTED_AT + timedelta(days=1000)


def seed_selectable(store: Store) -> None:
    """Six episodes of three groups; the last one has no group."""
    rows = [
        episode_row(f"e{number}", group, number, 1.0)
        | {"service_name": service, "agent_name": agent, "started_at": STARTED_AT + timedelta(seconds=number)}
        for number, (group, service, agent) in enumerate(
            [
                ("a", "shop", "clerk"),
                ("a", "shop", "clerk"),
                ("b", "shop", "buyer"),
                ("b", "desk", "buyer"),
                ("b", "desk", ""),
                ("", "desk", ""),
            ]
        )
    ]
    insert(store, "episodes", rows)
    steps = [transition_row(f"e{number}", "g", 0, {}) | {"model": f"vendor-{number % 2}"} for number in range(6)]
    insert(store, "transitions", steps)
    insert(store, "failures", [failure_row("e0", 0, "policy"), failure_row("e3", 0, "tool", error_class="timeout")])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "012345"),
        ({"services": ("desk",)}, "345"),
        ({"services": ("desk", "shop"), "agents": ("buyer",)}, "23"),
        ({"models": ("vendor-1",)}, "135"),
        ({"failure_classes": ("timeout", "invalid_arguments")}, "03"),
        ({"without_failure_classes": ("timeout",)}, "01245"),
        ({"until": STARTED_AT + timedelta(seconds=2)}, "01"),
        ({"max_episodes": 5}, "2345"),
        ({"max_episodes": 4}, "2345"),
        ({"max_episodes": 3}, "5"),
        ({"max_episodes": 2, "without_failure_classes": ("timeout",), "agents": ("", "buyer")}, "5"),
    ],
)
def test_settings_select_episodes(store: Store, settings: dict[str, object], expected: str) -> None:
    seed_selectable(store)
    assert selected_episodes(store, **settings) == {f"e{number}" for number in expected}


def test_a_first_group_over_the_limit_is_cut_to_its_newest_episodes(store: Store) -> None:
    insert(store, "episodes", [episode_row(f"e{number}", "a", number, 1.0) for number in range(6)])
    assert selected_episodes(store, max_episodes=4) == {"e2", "e3", "e4", "e5"}


def test_a_sample_has_whole_groups_and_is_the_same_for_a_seed(store: Store) -> None:
    rows = [episode_row(f"e{number}", f"g{number // 2}", number, 1.0) for number in range(400)]
    insert(store, "episodes", rows)
    chosen = selected_episodes(store, sample_rate=0.5)
    groups = {int(episode[1:]) // 2 for episode in chosen}
    assert len(chosen) == 2 * len(groups)
    assert 60 < len(groups) < 140
    assert selected_episodes(store, sample_rate=0.5) == chosen
    assert selected_episodes(store, sample_rate=0.5, seed=1) != chosen

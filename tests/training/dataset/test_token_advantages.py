"""Masks and advantages of the tokens, against a reference that loops over rows and steps."""

import random
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from spanloop.training.dataset.rejections import Rejection
from spanloop.training.dataset.selection import Rules, Selection
from spanloop.training.dataset.tally import Tally
from spanloop.training.recipes.choices import Credit
from spanloop.training.recipes.policy_gradient import PolicyGradient, StoredAdvantages

from ..call_reference import call_advantages, calls_of
from ..recipe_kinds import POLICY_GRADIENTS
from ..selection_rows import row, rules, select

Row = dict[str, Any]
Tokens = dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]
"""Trajectory id → mask and advantages."""
Masks = dict[str, npt.NDArray[np.int64]]
Scores = dict[str, dict[int, float]]
"""Episode id → step → its normalised score."""
OTHERS = ("tool", "environment", "harness", "unknown")


def random_rows(rng: random.Random) -> list[Row]:
    """Groups of several sizes; episodes of several rows; rows of several steps, with faults and masks."""
    rows: list[Row] = []
    for group in range(rng.randint(1, 4)):
        is_constant = rng.random() < 0.1
        for number in range(rng.randint(1, 9)):
            reward = 1.0 if is_constant else rng.choice([0.0, 0.3, 1.0, None, rng.random()])
            rows += random_episode(rng, f"{group}-{number}", f"g{group}", reward)
    return rows


def random_episode(rng: random.Random, episode: str, group: str, reward: float | None) -> list[Row]:
    counts = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    faults = [
        (step, rng.choice(["loop", "timeout", "wrong_answer"]), rng.choice(["policy", "policy", "user", *OTHERS]))
        for step in range(sum(counts))
        for _ in range(rng.choice([0, 0, 0, 1, 2]))
    ]
    of_episode = {
        "decided_by": rng.choice(["", "policy", *OTHERS]) if reward == 0 else "",
        "fault_steps": [step for step, _, _ in faults],
        "fault_classes": [error_class for _, error_class, _ in faults],
        "fault_owners": [owner for _, _, owner in faults],
        "fault_is_recovered": [rng.randint(0, 1) for _ in faults],
        "is_scored": rng.random() < 0.7,
    }
    rows: list[Row] = []
    first = 0
    for number, count in enumerate(counts):
        steps = list(range(first, first + count))
        first += count
        rows.append(row(episode, group, reward, number, **of_episode, **random_tokens(rng, steps)))
    return rows


def random_tokens(rng: random.Random, steps: list[int]) -> Row:
    mask: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    for _ in steps:
        mask += [0] * (rng.randint(0, 2) if mask else 0)
        starts.append(len(mask))
        mask += [int(rng.random() < 0.9)] * rng.randint(1, 4)
        ends.append(len(mask))
    is_old = rng.random() < 0.1
    return {
        "first_step": steps[0],
        "last_step": steps[-1],
        "sampled_steps": [] if is_old else steps,
        "sampled_starts": [] if is_old else starts,
        "sampled_ends": [] if is_old else ends,
        "step_rewards": [] if is_old else [rng.choice([None, 0.0, 1.0, rng.random()]) for _ in steps],
        "response_token_ids": [4] * len(mask),
        "loss_mask": mask,
        "logprobs": [-0.5] * len(mask),
        "is_trainable": rng.random() < 0.9,
    }


def faults_at(each: Row, step: int) -> list[tuple[str, str, int]]:
    columns = zip(
        each["fault_steps"], each["fault_classes"], each["fault_owners"], each["fault_is_recovered"], strict=True
    )
    return [(error_class, owner, recovered) for at, error_class, owner, recovered in columns if at == step]


def is_mistake(each: Row, step: int) -> bool:
    return any(owner == "policy" and error_class != "wrong_answer" for error_class, owner, _ in faults_at(each, step))


def is_others(each: Row, step: int) -> bool:
    return any(owner in OTHERS for _, owner, _ in faults_at(each, step))


def credit_of(job: Rules) -> Credit:
    return job.recipe.credit if isinstance(job.recipe, PolicyGradient) else Credit.BROADCAST


def gamma_of(job: Rules) -> float:
    return job.recipe.gamma if isinstance(job.recipe, StoredAdvantages) else 1.0


def group_size_of(job: Rules) -> int:
    assert isinstance(job.recipe, PolicyGradient)
    return job.recipe.group_size


def reference_mask(each: Row, job: Rules) -> npt.NDArray[np.int64] | None:
    """The mask of one row; None where the row is rejected."""
    is_attributed = credit_of(job) is Credit.ATTRIBUTED
    mask = np.array(each["loss_mask"])
    if not each["is_trainable"] or not mask.any():
        return None
    if job.recipe.kind != "sft":
        if each["reward"] is None or (is_attributed and each["decided_by"] in OTHERS):
            return None
        if not is_attributed:
            return mask
    for step in range(each["first_step"], each["last_step"] + 1):
        leaves_out = is_others(each, step) if is_attributed else is_mistake(each, step)
        start, end = 0, len(mask)
        if each["sampled_steps"]:
            place = each["sampled_steps"].index(step)
            start, end = each["sampled_starts"][place], each["sampled_ends"][place]
        elif each["first_step"] != each["last_step"]:
            if leaves_out or is_mistake(each, step):
                return None
            continue
        if leaves_out:
            mask[start:end] = 0
    return mask if mask.any() else None


def reference_weight(each: Row, step: int, advantage: float) -> float:
    if is_others(each, step):
        return 0.0
    if advantage > 0:
        return 0.0 if is_mistake(each, step) else 1.0
    if advantage < 0:
        for at in set(each["fault_steps"]):
            for error_class, owner, recovered in faults_at(each, at):
                located = owner == "policy" and error_class != "wrong_answer" and not recovered
                if located and not is_others(each, at):
                    return 1.0 if is_mistake(each, step) else 0.0
    return 1.0


def reference(rows: list[Row], job: Rules) -> Tokens:
    """What is trained on, row by row; advantages of zero for a recipe that has none."""
    masks = {each["trajectory_id"]: mask for each in rows if (mask := reference_mask(each, job)) is not None}
    usable = [each for each in rows if each["trajectory_id"] in masks]
    has_advantages = job.recipe.kind not in {"sft", "ppo"}
    if has_advantages and credit_of(job) is Credit.PROCESS:
        return by_call(rows, usable, masks, job)
    scores = (
        reference_scores(usable, job.recipe.kind) if has_advantages and credit_of(job) is Credit.PROCESS_GRPO else {}
    )
    discounts = episode_discounts(rows, job)
    tokens: Tokens = {}
    for each in usable:
        mask = masks[each["trajectory_id"]]
        advantages = np.zeros(len(mask))
        if has_advantages:
            discounted = [other | {"reward": other["reward"] * discounts[other["episode_id"]]} for other in usable]
            advantage = outcome_advantage(discounted[usable.index(each)], discounted, masks, scores, job.recipe.kind)
            if advantage is None:
                continue
            for token in range(len(mask)):
                step = step_of(each, token)
                weight = reference_weight(each, step, advantage) if credit_of(job) is Credit.ATTRIBUTED else 1.0
                later = following(each, step, scores) if each["sampled_steps"] else 0.0
                advantages[token] = mask[token] * (weight * advantage + later)
        tokens[each["trajectory_id"]] = mask, advantages
    return tokens


def episode_discounts(rows: list[Row], job: Rules) -> dict[str, float]:
    """Attributed credit discounts the reward to the first call."""
    gamma = gamma_of(job) if credit_of(job) is Credit.ATTRIBUTED else 1.0
    return {episode: gamma ** (len(steps) - 1) for episode, steps in calls_of(rows).items()}


def by_call(rows: list[Row], usable: list[Row], masks: Masks, job: Rules) -> Tokens:
    """Each token has the advantage of its call; nothing where no call's advantage differs from zero."""
    tokens: Tokens = {}
    for each in usable:
        peers = [other for other in usable if is_compared(job.recipe.kind, each, other)]
        calls = call_advantages(
            rows, list({other["episode_id"]: other for other in peers}.values()), job.recipe.kind, gamma_of(job)
        )
        if max(abs(calls[other["episode_id"]][step]) for other in peers for step in steps_of(other)) <= 1e-6:
            continue
        mask = masks[each["trajectory_id"]]
        values = [calls[each["episode_id"]][step_of(each, token)] * mask[token] for token in range(len(mask))]
        tokens[each["trajectory_id"]] = mask, np.array(values, dtype=np.float64)
    return tokens


def steps_of(each: Row) -> list[int]:
    return each["sampled_steps"] or [each["first_step"]]


def outcome_advantage(each: Row, usable: list[Row], masks: Masks, scores: Scores, kind: str) -> float | None:
    """The advantage of an episode by its reward; None where nothing that is compared varies."""
    peers = [other for other in usable if is_compared(kind, each, other)]
    if kind == "reinforce_plus_plus":
        compared = np.array(
            [other["reward"] for other in peers for _ in range(int(masks[other["trajectory_id"]].sum()))]
        )
    else:
        compared = np.array(list({other["episode_id"]: other["reward"] for other in peers}.values()))
    sums = [following(other, step, scores) for other in peers for step in other["sampled_steps"]]
    if len(compared) < 2 or (np.ptp(compared) <= 1e-6 and max(map(abs, sums), default=0) <= 1e-6):
        return None
    if any(other["episode_id"] in scores for other in peers) and not all(other["is_scored"] for other in peers):
        return 0.0
    return reference_advantage(kind, each["reward"], compared)


def is_compared(kind: str, each: Row, other: Row) -> bool:
    return kind == "reinforce_plus_plus" or each["group_id"] == other["group_id"]


def reference_scores(usable: list[Row], kind: str) -> Scores:
    """Normalised scores of steps, by episode and step (Shao et al. 2024, section 4.1.3)."""
    scores: Scores = defaultdict(dict)
    for each in usable:
        peers = [other for other in usable if is_compared(kind, each, other)]
        compared = np.array([score for other in peers for score in other["step_rewards"] if score is not None])
        for step, score in zip(each["sampled_steps"], each["step_rewards"], strict=True):
            if score is not None:
                alone = len(compared) < 2
                scores[each["episode_id"]][step] = 0.0 if alone else reference_advantage(kind, score, compared)
    return scores


def following(each: Row, step: int, scores: Scores) -> float:
    return sum(value for at, value in scores.get(each["episode_id"], {}).items() if at >= step)


def reference_rewards(rows: list[Row], job: Rules) -> dict[str, npt.NDArray[np.float64]]:
    """The rewards of ppo's tokens, by row: the differences of what follows each step."""
    masks = {each["trajectory_id"]: mask for each in rows if (mask := reference_mask(each, job)) is not None}
    usable = [each for each in rows if each["trajectory_id"] in masks]
    raw: Scores = defaultdict(dict)
    episodes = {each["episode_id"] for each in usable}
    for each in rows if credit_of(job) is Credit.PROCESS else []:
        found = zip(each["sampled_steps"], each["step_rewards"], strict=True)
        if each["episode_id"] in episodes:
            raw[each["episode_id"]].update({step: score for step, score in found if score is not None})
    rewards: dict[str, npt.NDArray[np.float64]] = {}
    for each in usable:
        mask = masks[each["trajectory_id"]]
        is_broadcast = not any(raw.values()) or not each["sampled_steps"]
        own = each["reward"] if is_broadcast or each["is_scored"] else 0.0
        left = 0.0
        rewards[each["trajectory_id"]] = values = np.zeros(len(mask))
        for token in reversed(np.flatnonzero(mask)):
            follows = own + (0.0 if is_broadcast else following(each, step_of(each, int(token)), raw))
            values[token] = follows - left
            left = follows
    return rewards


def reference_advantage(kind: str, reward: float, compared: npt.NDArray[np.float64]) -> float:
    """An episode's advantage over the rewards that its recipe compares, its own among them."""
    difference = reward - compared.mean()
    if kind == "rloo":
        return float(difference * len(compared) / (len(compared) - 1))
    if kind in {"grpo", "gspo"}:
        return float(difference / (compared.std(ddof=1) + 1e-6))
    if kind == "reinforce_plus_plus":
        return float(difference / np.sqrt(compared.var(ddof=1) + 1e-8))
    return float(difference)


def step_of(each: Row, token: int) -> int:
    """The step that sampled a token; any of the row's for a token between steps, which is masked."""
    for step, start, end in zip(each["sampled_steps"], each["sampled_starts"], each["sampled_ends"], strict=True):
        if start <= token < end:
            return int(step)
    return int(each["first_step"])


KINDS = ["sft", *POLICY_GRADIENTS]


def job_of(kind: str, seed: int) -> Rules:
    """Parts of several sizes with each kind of credit that the recipe has."""
    has = {"sft": [Credit.BROADCAST], "ppo": [Credit.BROADCAST, Credit.PROCESS]}.get(kind, [*Credit])
    credit = has[seed // 3 % len(has)]
    gamma = (1.0, 0.9, 0.5)[seed % 3] if credit in {Credit.PROCESS, Credit.ATTRIBUTED} and kind != "ppo" else 1.0
    return rules(kind, group_size=(2, 3, 8)[seed % 3], credit=credit, gamma=gamma)


def assert_equals_reference(seed: int, kind: str) -> int:
    """Compare one dataset; returns its number of rows."""
    rows, job = random_rows(random.Random(seed)), job_of(kind, seed)
    selection = select(rows, job)
    expected = reference(rows, job)
    rewards = reference_rewards(rows, job) if kind == "ppo" else {}
    rows_by_id = {each["trajectory_id"]: each for each in selection.rows.iter_rows(named=True)}
    assert rows_by_id.keys() == expected.keys(), seed
    for identity, (mask, advantages) in expected.items():
        assert rows_by_id[identity]["loss_mask"] == mask.tolist(), (seed, identity)
        if kind in {"sft", "ppo"}:
            assert rows_by_id[identity]["advantages"] is None
            if kind == "ppo":
                np.testing.assert_allclose(rows_by_id[identity]["rewards"], rewards[identity], rtol=0, atol=1e-5)
        else:
            np.testing.assert_allclose(rows_by_id[identity]["advantages"], advantages, rtol=0, atol=1e-5)
    assert selection.row_tally.total == len(rows)
    before = {each["trajectory_id"]: sum(each["loss_mask"]) for each in rows}
    lost = sum(before[identity] - int(mask.sum()) for identity, (mask, _) in expected.items())
    assert selection.rows["masked_tokens"].sum() == lost
    sizes = selection.rows.group_by("group_id").agg(pl.col("episode_id").n_unique())["episode_id"]
    assert kind == "sft" or all(size <= group_size_of(job) for size in sizes)
    return len(rows_by_id)


def test_masks_and_advantages_equal_the_reference_on_84_datasets() -> None:
    # the kinds take turns with blocks of twelve seeds, which have each size of parts with each kind of credit
    assert sum(assert_equals_reference(seed, KINDS[seed // 12 % len(KINDS)]) for seed in range(84)) > 400


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_recipe_equals_the_reference_on_200_datasets(kind: str) -> None:
    assert sum(assert_equals_reference(seed, kind) for seed in range(200)) > 1_000


def advantages_of(selection: Selection, episodes: set[str]) -> dict[str, bytes]:
    """Bit for bit."""
    return {
        each["trajectory_id"]: np.array(each["advantages"], dtype=np.float32).tobytes()
        for each in selection.rows.iter_rows(named=True)
        if each["episode_id"] in episodes
    }


@pytest.mark.parametrize(
    ("credit", "broken"),
    [
        (Credit.BROADCAST, {"is_trainable": False, "untrainable_reason": "environment_fault"}),
        (Credit.ATTRIBUTED, {"is_trainable": False, "untrainable_reason": "environment_fault"}),
        (Credit.PROCESS, {"is_trainable": False, "untrainable_reason": "environment_fault", "step_rewards": [9.0]}),
        (Credit.PROCESS_GRPO, {"is_trainable": False, "untrainable_reason": "environment_fault",
                               "step_rewards": [9.0]}),
        (Credit.ATTRIBUTED, {"decided_by": "tool"}),
        (Credit.ATTRIBUTED, {"fault_steps": [0], "fault_classes": ["tool_error"], "fault_owners": ["tool"],
                             "fault_is_recovered": [0]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("kind", ["dr_grpo", "grpo", "rloo", "gspo", "reinforce_plus_plus"])
def test_episodes_that_others_decided_change_no_other_advantage(
    kind: str, credit: Credit, broken: Row, count: int
) -> None:
    rows = [row(f"e{number}", reward=(rng := random.Random(number)).random(), step_rewards=[rng.random()])
            for number in range(7)]  # fmt: skip
    others = [row(f"{'az'[number % 2]}{number}", reward=0.0, **broken) for number in range(count)]
    job = rules(kind, credit=credit, group_size=4)
    episodes = {each["episode_id"] for each in rows}
    alone, beside = select(rows, job), select([*rows, *others], job)
    assert len(advantages_of(alone, episodes)) == 7
    assert advantages_of(alone, episodes) == advantages_of(beside, episodes)
    assert beside.row_tally.rejected.keys() <= {"environment_fault", "not_the_policys_fault", "all_steps_masked"}


def test_early_failures_are_compared_with_later_successes() -> None:
    rows = [row(f"{'az'[number // 8]}{number}", reward=float(number // 8)) for number in range(16)]
    selection = select(rows, rules(group_size=8))
    assert selection.row_tally.accepted == 16
    assert set(selection.rows["advantages"].explode().to_list()) == {-0.5, 0.5}
    parts = selection.rows.group_by("group_id").agg(pl.col("reward").mean(), pl.len())
    assert parts["reward"].to_list() == [0.5, 0.5]
    assert parts["len"].to_list() == [8, 8]


def test_a_part_of_one_episode_keeps_its_groups_baseline() -> None:
    selection = select([row(name, reward=reward) for name, reward in zip("abc", (0, 0.5, 1), strict=True)], rules())
    cut = select(
        [row(name, reward=reward) for name, reward in zip("abc", (0, 0.5, 1), strict=True)], rules(group_size=2)
    )
    assert sorted(cut.rows.group_by("group_id").len()["len"]) == [1, 2]
    assert advantages_of(cut, set("abc")) == advantages_of(selection, set("abc"))


def test_reinforce_plus_plus_compares_all_episodes_and_needs_no_group() -> None:
    rows = [row("a", "", 0.0), row("b", "", 1.0), row("c", "g", 1.0)]
    selection = select(rows, rules("reinforce_plus_plus"))
    assert sorted(selection.rows["group_id"]) == ["a", "b", "g"]
    advantages = dict(selection.rows.select("episode_id", "advantages").iter_rows())
    assert advantages["b"] == advantages["c"]
    tokens = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(advantages["a"], -tokens.mean() / tokens.std(ddof=1), rtol=1e-5)
    alike = select([row(name, "", 1.0) for name in "ab"], rules("reinforce_plus_plus"))
    assert alike.row_tally.rejected == {Rejection.REWARD_CONSTANT: 2}


def test_ppo_takes_episodes_without_a_group_or_with_equal_rewards() -> None:
    selection = select([row("a", "", 1.0), row("b", "g", 1.0)], rules("ppo"))
    assert selection.row_tally == Tally(2, {})
    assert selection.rows["advantages"].to_list() == [None, None]


TWO_STEPS: Row = {
    "response_token_ids": [4, 5, 6],
    "loss_mask": [1, 0, 1],
    "logprobs": [-0.5, 0.0, -0.5],
    "last_step": 1,
    "sampled_steps": [0, 1],
    "sampled_starts": [0, 2],
    "sampled_ends": [1, 3],
}


def test_the_score_of_a_call_counts_for_its_step_and_those_before_it() -> None:
    rows = [
        row("a", reward=1.0, **TWO_STEPS, step_rewards=[1.0, 0.0]),
        row("a", reward=1.0, number=2, step_rewards=[0.5]),
        row("b", reward=0.0, **TWO_STEPS, step_rewards=[None, 0.5]),
    ]
    by_id = dict(
        select(rows, rules(credit=Credit.PROCESS)).rows.select("trajectory_id", "advantages").iter_rows()
    )  # returns to go of a: 2.5, 1.5, 1.5; of b: 0.5, 0.5
    assert by_id == {"a/0": [1.0, 0.0, 0.5], "a/2": [0.75, 0.75], "b/0": [-1.0, 0.0, -0.5]}


def test_the_older_process_credit_sums_normalised_scores() -> None:
    """Shao et al. 2024, section 4.1.3: normalised scores, summed from each token's step on."""
    rows = [
        row("a", reward=1.0, **TWO_STEPS, step_rewards=[1.0, 0.0]),
        row("a", reward=1.0, number=2, step_rewards=[0.5]),
        row("b", reward=0.0, **TWO_STEPS, step_rewards=[None, 0.5]),
    ]
    by_id = dict(
        select(rows, rules(credit=Credit.PROCESS_GRPO)).rows.select("trajectory_id", "advantages").iter_rows()
    )  # the scores' mean is 0.5, the rewards' too
    assert by_id == {"a/0": [0.5, 0.0, 0.0], "a/2": [0.5, 0.5], "b/0": [-0.5, 0.0, -0.5]}
    deviation = float(np.std([1.0, 0.0, 0.5, 0.5], ddof=1))
    grpo = select(rows, rules("grpo", credit=Credit.PROCESS_GRPO)).rows.filter(pl.col("trajectory_id") == "a/0")
    outcome = 0.5 / float(np.std([1.0, 0.0], ddof=1))
    np.testing.assert_allclose(grpo["advantages"][0], [outcome, 0.0, outcome - 0.5 / deviation], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("credit", [Credit.PROCESS, Credit.PROCESS_GRPO])
def test_scores_of_steps_do_not_count_twice_where_they_are_the_reward(credit: Credit) -> None:
    rows = [row("a", reward=0.75, step_rewards=[0.75], is_scored=False), row("b", reward=0.25, step_rewards=[0.25])]
    advantages = dict(select(rows, rules(credit=credit)).rows.select("episode_id", "advantages").iter_rows())
    assert advantages == {"a": [0.25, 0.25], "b": [-0.25, -0.25]}
    alike = [row(name, reward=1.0, step_rewards=[score]) for name, score in (("a", 1.0), ("b", 0.0))]
    assert select(alike, rules(credit=credit)).row_tally.accepted == 2
    assert select(alike, rules()).row_tally.rejected == {Rejection.REWARD_CONSTANT: 2}


def test_the_return_of_a_token_of_ppo_is_what_follows_it() -> None:
    without_first: Row = TWO_STEPS | {"loss_mask": [0, 0, 1]}
    rows = [
        row("a", reward=1.0, **TWO_STEPS, step_rewards=[0.25, 0.5]),
        row("a", reward=1.0, number=2, step_rewards=[2.0]),
        row("b", reward=0.5, **TWO_STEPS, step_rewards=[0.0, 1.0], is_scored=False),
        row("c", reward=0.0, **without_first, step_rewards=[4.0, 0.5]),
    ]
    selection = select(rows, rules("ppo", credit=Credit.PROCESS))
    rewards = dict(selection.rows.select("trajectory_id", "rewards").iter_rows())
    assert rewards == {"a/0": [0.25, 0, 3.5], "a/2": [0, 3.0], "b/0": [0, 0, 1.0], "c/0": [0, 0, 0.5]}
    alone = dict(select(rows, rules("ppo")).rows.select("trajectory_id", "rewards").iter_rows())
    assert alone == {"a/0": [0, 0, 1.0], "a/2": [0, 1.0], "b/0": [0, 0, 0.5], "c/0": [0, 0, 0.0]}
    assert select([row("a"), row("b", reward=0.0)], rules()).rows["rewards"].to_list() == [None, None]


MISTAKE: Row = {
    "fault_steps": [0],
    "fault_classes": ["invalid_arguments"],
    "fault_owners": ["policy"],
    "fault_is_recovered": [1],
}


def test_sft_leaves_a_mistake_inside_a_good_episode_out() -> None:
    selection = select([row("a", **(MISTAKE | TWO_STEPS))], rules("sft"))
    assert selection.rows.select("loss_mask", "masked_steps", "masked_tokens").rows() == [([0, 0, 1], 1, 1)]
    alone = select([row("a", **MISTAKE)], rules("sft"))
    assert alone.row_tally.rejected == {Rejection.ALL_STEPS_MASKED: 1}


def test_a_row_whose_steps_cannot_be_told_apart_is_rejected_only_where_they_must_be() -> None:
    nowhere: Row = {"sampled_steps": [], "sampled_starts": [], "sampled_ends": []}
    unknown: Row = TWO_STEPS | nowhere
    selection = select([row("a", **(unknown | MISTAKE)), row("b", **unknown)], rules("sft"))
    assert selection.row_tally.rejected == {Rejection.UNKNOWN_STEP_POSITIONS: 1}
    assert selection.rows["episode_id"].to_list() == ["b"]

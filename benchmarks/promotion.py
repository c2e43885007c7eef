"""How often a promotion rule is wrong, and how many tasks it needs: simulations of the rule that decides.

    python benchmarks/promotion.py [--quick] [--seed 0]

Each simulated series is looked at ten times. A look is ``spanloop.training.promotion.judge`` on all tasks so far, with
the rule of a ``spanloop.toml`` without ``[promotion]``.

- A/A: candidate and champion succeed equally often, and 30 % of the tasks differ by chance.
- Power: the candidate is 10 points better (20 % of the tasks are won, 10 % lost).
- Crashes: the candidate crashes in half of its attempts and succeeds in all others; the champion succeeds in a fifth.
- Canary: the candidate succeeds in 60 % of its sessions, the champion in 70 %; the candidate has 10 % of the sessions,
  and a look follows every 25 of its sessions.

``false_promotions`` and ``power`` are shares of the series, ``rollback`` is the share of the canaries that were rolled
back within 600 rewarded sessions of the candidate, and ``tasks`` is the limit that ``power`` was reached with.
"""

import argparse
from typing import Final, NamedTuple

import numpy as np

from spanloop.foundation.settings import Promotion
from spanloop.foundation.settings.metric import Metric
from spanloop.training.promotion.canary.session_blocks import Session
from spanloop.training.promotion.judge import Pair, judge, judge_canary
from spanloop.training.promotion.outcome import PromotionOutcome

RULE: Final = Promotion()
LOOKS: Final = 10
CANARY_LIMIT: Final = 600
CANARY_LOOK: Final = 25
SHARE: Final = 0.1


class SeriesEnd(NamedTuple):
    """The end of one series."""

    outcome: PromotionOutcome
    tasks: int
    """Seen until the outcome."""


class Tasks(NamedTuple):
    """Outcomes at the same tasks, 1 for yes."""

    candidate: np.ndarray
    champion: np.ndarray
    candidate_crashes: np.ndarray
    champion_crashes: np.ndarray


def discordant(generator: np.random.Generator, tasks: int, *, wins: float, losses: float) -> Tasks:
    """Return tasks of which the candidate alone solves a share and the champion alone another."""
    kinds = generator.choice(4, size=tasks, p=[wins, losses, (1 - wins - losses) / 2, (1 - wins - losses) / 2])
    none = np.zeros(tasks)
    return Tasks(np.isin(kinds, (0, 2)).astype(float), np.isin(kinds, (1, 2)).astype(float), none, none)


def crashing(generator: np.random.Generator, tasks: int) -> Tasks:
    """Return tasks at which the candidate crashes half of the time; a crash is a failure."""
    crashes = (generator.random(tasks) < 0.5).astype(float)
    return Tasks(1 - crashes, (generator.random(tasks) < 0.2).astype(float), crashes, np.zeros(tasks))


def look_ten_times(tasks: Tasks, limit: int) -> SeriesEnd:
    """Return the first outcome of ten looks, or that of the last look."""
    outcome, seen = PromotionOutcome.UNDECIDED, 0
    for look in range(1, LOOKS + 1):
        seen = limit * look // LOOKS
        pairs = {
            metric: {str(task): Pair(*map(float, values)) for task, values in enumerate(zip(*columns, strict=True))}
            for metric, columns in (
                (Metric.SUCCESS, (tasks.candidate[:seen], tasks.champion[:seen])),
                (Metric.CRASHES, (tasks.candidate_crashes[:seen], tasks.champion_crashes[:seen])),
            )
        }
        outcome = judge(RULE, pairs).outcome
        if outcome is not PromotionOutcome.UNDECIDED:
            break
    return SeriesEnd(outcome, seen)


def canary(generator: np.random.Generator, *, candidate: float, champion: float) -> SeriesEnd:
    """Return the end of a canary that takes a tenth of the sessions."""
    is_candidate = generator.random(int(1.3 * CANARY_LIMIT / SHARE)) < SHARE
    successes = generator.random(is_candidate.size) < np.where(is_candidate, candidate, champion)
    sessions = [Session(bool(ours), float(good)) for ours, good in zip(is_candidate, successes, strict=True)]
    ends = np.flatnonzero(is_candidate)[CANARY_LOOK - 1 : CANARY_LIMIT : CANARY_LOOK]
    for end in ends:
        seen = sessions[: end + 1]
        crashes = [Session(session.is_candidate, 0.0) for session in seen]
        judgement = judge_canary(RULE, {Metric.SUCCESS: seen, Metric.CRASHES: crashes})
        if judgement.outcome is not PromotionOutcome.UNDECIDED:
            return SeriesEnd(judgement.outcome, sum(session.is_candidate for session in seen))
    return SeriesEnd(PromotionOutcome.UNDECIDED, CANARY_LIMIT)


def share(series: list[SeriesEnd], outcome: PromotionOutcome) -> float:
    """Return the share of the series with an outcome."""
    return sum(each.outcome is outcome for each in series) / len(series)


def needed(series: list[SeriesEnd], outcome: PromotionOutcome) -> str:
    """Return the median number of tasks of the series with an outcome."""
    tasks = sorted(each.tasks for each in series if each.outcome is outcome)
    return f"median {tasks[len(tasks) // 2]}" if tasks else "never"


def main() -> None:
    """Simulate all cases and print a table and the ratio line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the series; under a minute")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    series, canaries = (100, 20) if options.quick else (1_000, 200)
    limit = RULE.max_tasks

    def promoted(name: str, series: list[SeriesEnd]) -> float:
        found = share(series, PromotionOutcome.PROMOTED)
        print(f"  {name:<58}{found:>8.1%} promoted, {needed(series, PromotionOutcome.PROMOTED)} tasks")
        return found

    print(f"{series} series of {LOOKS} looks; {canaries} canaries; alpha {RULE.alpha:g}")
    false_promotions = promoted(
        f"A/A, 30 % discordant, {limit} tasks",
        [look_ten_times(discordant(generator, limit, wins=0.15, losses=0.15), limit) for _ in range(series)],
    )
    power = promoted(
        f"+10 points, 30 % discordant, {limit} tasks",
        [look_ten_times(discordant(generator, limit, wins=0.2, losses=0.1), limit) for _ in range(series)],
    )
    for tasks in (100, 200, 300):
        promoted(
            f"+10 points, 30 % discordant, {tasks} tasks",
            [look_ten_times(discordant(generator, tasks, wins=0.2, losses=0.1), tasks) for _ in range(series)],
        )
    promoted(
        "+20 points, 40 % discordant, 200 tasks",
        [look_ten_times(discordant(generator, 200, wins=0.3, losses=0.1), 200) for _ in range(series)],
    )
    promoted(
        f"crashes in half of its attempts, {limit} tasks",
        [look_ten_times(crashing(generator, limit), limit) for _ in range(series)],
    )
    worse = [canary(generator, candidate=0.6, champion=0.7) for _ in range(canaries)]
    rollback = share(worse, PromotionOutcome.ROLLED_BACK)
    sessions = needed(worse, PromotionOutcome.ROLLED_BACK)
    print(f"  {'canary 10 points worse, 10 % of the sessions':<58}{rollback:>8.1%} rolled back, {sessions} sessions")
    equal = share(
        [canary(generator, candidate=0.7, champion=0.7) for _ in range(canaries)], PromotionOutcome.ROLLED_BACK
    )
    print(f"  {'canary as good as the champion':<58}{equal:>8.1%} rolled back")
    print(f"ratio false_promotions={false_promotions:.3f} power={power:.3f} rollback={rollback:.3f} tasks={limit}")


if __name__ == "__main__":
    main()

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloop.training.promotion.canary.session_blocks import Arm, CanaryTest, Session
from spanloop.training.promotion.sequential import SequentialTest, anytime_interval

DIFFERENCES = st.lists(st.sampled_from((-1.0, -0.5, 0.0, 0.25, 1.0)) | st.floats(-1, 1), max_size=40)
MARGINS = st.floats(-0.5, 0.5)
SESSIONS = st.lists(st.builds(Session, st.booleans(), st.sampled_from((0.0, 0.5, 1.0)) | st.floats(0, 1)), max_size=60)


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 0.5), st.floats(0, 0.5), st.integers(1, 4))
def test_without_a_difference_the_expected_e_value_is_at_most_one(win: float, loss: float, pairs: int) -> None:
    """Exactly: over all outcomes of paired successes whose mean difference is at most zero."""
    win, loss = min(win, loss), max(win, loss)
    chances = {1.0: win, -1.0: loss, 0.0: 1 - win - loss}
    expected = sum(
        math.prod(chances[difference] for difference in outcome) * SequentialTest().update(outcome).e_value
        for outcome in itertools.product(chances, repeat=pairs)
    )
    assert expected <= 1 + 1e-9
    if win == loss:
        assert expected == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(st.floats(-0.6, 0.6), st.floats(0.01, 1), st.floats(0, 2.5))
def test_rewards_at_the_margin_give_an_expected_e_value_of_one(margin: float, spread: float, weight: float) -> None:
    """A mean of exactly the margin, of two values as far apart as ``spread`` allows."""
    low, high = margin - spread * (1 + margin), margin + spread * (1 - margin)
    chance_high = (margin - low) / (high - low)
    ends = ((low, 1 - chance_high), (high, chance_high))
    expected = sum(
        first_chance * second_chance * SequentialTest(margin).update([first, second], [weight, 1.0]).e_value
        for (first, first_chance), (second, second_chance) in itertools.product(ends, ends)
    )
    assert expected == pytest.approx(1, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(DIFFERENCES, st.integers(0, 40), MARGINS)
def test_a_look_continues_from_the_stored_state(differences: list[float], looked_at: int, margin: float) -> None:
    at_once = SequentialTest(margin).update(differences)
    in_two = SequentialTest(margin).update(differences[:looked_at]).update(differences[looked_at:])
    assert in_two.count == at_once.count == len(differences)
    assert in_two.log_e_value == pytest.approx(at_once.log_e_value, abs=1e-9)
    assert in_two.mean == pytest.approx(at_once.mean)


@settings(max_examples=50, deadline=None)
@given(DIFFERENCES, st.randoms(use_true_random=False))
def test_the_order_of_the_tasks_does_not_matter(differences: list[float], random: object) -> None:
    shuffled = list(differences)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    before, after = SequentialTest().update(differences), SequentialTest().update(shuffled)
    assert before.log_e_value == pytest.approx(after.log_e_value, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(DIFFERENCES, st.integers(0, 39), st.floats(0, 1), MARGINS)
def test_a_better_pair_never_weakens_the_evidence(
    differences: list[float], place: int, gain: float, margin: float
) -> None:
    if not differences:
        return
    place %= len(differences)
    raised = [*differences]
    raised[place] = min(1.0, raised[place] + gain)
    lower, upper = SequentialTest(margin).update(differences), SequentialTest(margin).update(raised)
    assert upper.log_e_value >= lower.log_e_value - 1e-9


def test_wins_alone_give_the_integral_over_all_bets() -> None:
    """The mean of (1 + λ) ** n under the density 12·λ·(1 - λ)²; exact, because the quadrature is."""
    for wins in (1, 5, 20):
        expected = sum(math.comb(wins, k) * 12 * math.gamma(k + 2) * 2 / math.gamma(k + 5) for k in range(wins + 1))
        assert SequentialTest().update([1.0] * wins).e_value == pytest.approx(expected)


def test_ties_say_nothing_and_thousands_of_pairs_stay_finite() -> None:
    assert SequentialTest().update([0.0] * 500).e_value == pytest.approx(1)
    for difference in (1.0, -1.0):
        state = SequentialTest().update([difference] * 100_000)
        assert math.isfinite(state.log_e_value)
        assert state.rejects(0.05) == (difference > 0)


@pytest.mark.parametrize("wrong", [1.01, -1.5, math.nan, math.inf])
def test_a_difference_out_of_range_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="expected numbers from -1 to 1"):
        SequentialTest().update([0.0, wrong])
    with pytest.raises(ValueError, match="expected a number between -1 and 1"):
        SequentialTest(wrong)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_an_interval_holds_what_the_tests_do_not_reject(differences: list[float]) -> None:
    interval = anytime_interval(differences, alpha=0.1)
    mean = float(np.mean(differences))
    assert -1 <= interval.low <= mean + 1e-6
    assert mean - 1e-6 <= interval.high <= 1
    if interval.low > -0.99:
        assert SequentialTest(interval.low - 1e-4).update(differences).rejects(0.05)
    assert not SequentialTest(min(interval.low + 1e-4, 0.999)).update(differences).rejects(0.05)
    mirrored = anytime_interval([-difference for difference in differences], alpha=0.1)
    assert mirrored == pytest.approx((-interval.high, -interval.low))


def test_an_interval_narrows_with_more_tasks() -> None:
    generator = np.random.default_rng(3)
    differences = generator.choice([1.0, -1.0, 0.0], p=[0.2, 0.1, 0.7], size=2_000).tolist()
    widths = [high - low for low, high in (anytime_interval(differences[:n]) for n in (50, 200, 800, 2_000))]
    assert widths == sorted(widths, reverse=True)
    low, high = anytime_interval(differences)
    assert 0 < low < 0.1 < high < 0.2


@settings(max_examples=50, deadline=None)
@given(SESSIONS, st.integers(0, 60))
def test_a_canary_continues_from_the_stored_state(sessions: list[Session], looked_at: int) -> None:
    at_once = CanaryTest.start(margin=0.02, tolerance=0.05).update(sessions)
    in_two = CanaryTest.start(margin=0.02, tolerance=0.05).update(sessions[:looked_at]).update(sessions[looked_at:])
    assert (in_two.candidate, in_two.champion) == (at_once.candidate, at_once.champion)
    assert (in_two.open_candidate, in_two.open_champion) == (at_once.open_candidate, at_once.open_champion)
    for one, other in ((in_two.better, at_once.better), (in_two.worse, at_once.worse)):
        assert one.log_e_value == pytest.approx(other.log_e_value, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(SESSIONS)
def test_each_session_counts_once_and_swapping_the_versions_swaps_the_evidence(sessions: list[Session]) -> None:
    state = CanaryTest.start().update(sessions)
    assert state.candidate.sessions + state.champion.sessions == len(sessions)
    assert not (state.open_candidate.sessions and state.open_champion.sessions)
    assert state.better.count == state.worse.count
    assert state.better.mean == pytest.approx(-state.worse.mean)
    swapped = CanaryTest.start().update([Session(not session.is_candidate, session.value) for session in sessions])
    assert swapped.better.log_e_value == pytest.approx(state.worse.log_e_value, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=7), st.floats(0, 1))
def test_equal_versions_give_a_canary_an_expected_e_value_of_one(order: list[bool], success: float) -> None:
    """Exactly: over all outcomes of sessions whose versions succeed equally often."""
    expected = [0.0, 0.0]
    for outcome in itertools.product((0.0, 1.0), repeat=len(order)):
        chance = math.prod(success if value else 1 - success for value in outcome)
        state = CanaryTest.start().update(map(Session, order, outcome))
        expected[0] += chance * state.better.e_value
        expected[1] += chance * state.worse.e_value
    assert expected == pytest.approx([1, 1])


def test_a_block_ends_as_soon_as_both_versions_are_in_it() -> None:
    champion, candidate = Session(is_candidate=False, value=1.0), Session(is_candidate=True, value=0.0)
    state = CanaryTest.start().update([champion, champion, candidate, champion, candidate, champion])
    assert (state.worse.count, state.worse.mean) == (2, 1.0)
    assert state.open_champion == Arm(1, 1.0)


def test_a_session_value_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a number from 0 to 1"):
        CanaryTest.start().update([Session(is_candidate=True, value=1.5)])

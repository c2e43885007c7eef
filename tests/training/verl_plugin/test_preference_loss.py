# pyright: basic
# torch is half annotated
"""The loss of DPO against NumPy in float64, and its derivatives against torch's autograd of the plain formula."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spanloop.training.recipes.choices import DpoLoss
from spanloop.training.verl_plugin.supervised.preference_loss import PairedLogprobs, preference_loss


@st.composite
def batches(draw: st.DrawFn) -> PairedLogprobs:
    """Pairs of episodes of one to three rows, with log-probabilities from ordinary to extreme."""
    size = draw(st.sampled_from([1.0, 100.0, 1e5]))
    sums = st.floats(-size, 0, allow_subnormal=False)
    rows = [
        (draw(sums), draw(sums), draw(st.integers(1, 500)), pair, is_chosen)
        for pair in range(draw(st.integers(1, 5)))
        for is_chosen in (True, False)
        for _ in range(draw(st.integers(1, 3)))
    ]
    policy, reference, tokens, pairs, chosen = zip(*draw(st.permutations(rows)), strict=True)
    return PairedLogprobs(
        torch.tensor(policy, dtype=torch.float64),
        torch.tensor(reference, dtype=torch.float64),
        torch.tensor(tokens),
        torch.tensor(pairs),
        torch.tensor(chosen),
    )


def expected_loss(rows: PairedLogprobs, beta: float, nll_weight: float) -> float:
    """Rafailov et al. 2023, equation 7, pair by pair; ``log(1 + exp(-m))`` by ``logaddexp``."""
    losses = []
    for pair in sorted(set(rows.pair.tolist())):
        side = {is_chosen: ((rows.pair == pair) & (rows.is_chosen == is_chosen)).numpy() for is_chosen in (True, False)}
        policy, reference, tokens = (each.numpy() for each in rows[:3])
        better = policy[side[True]].sum() - reference[side[True]].sum()
        worse = policy[side[False]].sum() - reference[side[False]].sum()
        nll = -policy[side[True]].sum() / tokens[side[True]].sum()
        losses.append(np.logaddexp(0, -beta * (better - worse)) + nll_weight * nll)
    return float(np.mean(losses))


def plain_loss(rows: PairedLogprobs, policy: torch.Tensor, beta: float, nll_weight: float) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    pairs = sorted(set(rows.pair.tolist()))
    for pair in pairs:
        better, worse = (rows.pair == pair) & rows.is_chosen, (rows.pair == pair) & ~rows.is_chosen
        ratio = policy - rows.reference
        total = total - torch.nn.functional.logsigmoid(beta * (ratio[better].sum() - ratio[worse].sum()))
        total = total - nll_weight * policy[better].sum() / rows.tokens[better].sum()
    return total / len(pairs)


@given(batches(), st.sampled_from([0.01, 0.1, 1.0]), st.sampled_from([0.0, 1.0]))
def test_loss_and_derivatives_are_those_of_the_formula(rows: PairedLogprobs, beta: float, nll_weight: float) -> None:
    computed = preference_loss(rows, beta=beta, nll_weight=nll_weight)
    assert float(computed.loss) == pytest.approx(expected_loss(rows, beta, nll_weight), rel=1e-6, abs=1e-6)
    policy = rows.policy.clone().requires_grad_()
    plain_loss(rows, policy, beta, nll_weight).backward()
    assert policy.grad is not None
    torch.testing.assert_close(computed.row_weights, policy.grad, rtol=1e-6, atol=1e-9)


@given(batches(), st.sampled_from([0.0, 1.0]))
def test_the_rows_of_a_pair_share_its_loss_and_add_up_to_that_of_the_batch(
    rows: PairedLogprobs, nll_weight: float
) -> None:
    shares = preference_loss(rows, beta=0.1, nll_weight=nll_weight).row_losses
    pairs = sorted(set(rows.pair.tolist()))
    for pair in pairs:
        of_pair = rows.pair == pair
        alone = PairedLogprobs(*(each[of_pair] for each in rows))._replace(
            pair=torch.zeros(int(of_pair.sum()), dtype=torch.int64)
        )
        expected = expected_loss(alone, 0.1, nll_weight) / len(pairs) / int(of_pair.sum())
        assert shares[of_pair].tolist() == pytest.approx([expected] * int(of_pair.sum()), rel=1e-6, abs=1e-9)
    assert float(shares.sum()) == pytest.approx(expected_loss(rows, 0.1, nll_weight), rel=1e-6, abs=1e-6)


def margin_loss(loss: DpoLoss, margin: float, beta: float, smoothing: float) -> float:
    """One pair's loss: SLiC-HF, IPO's equation 17, cDPO."""
    if loss is DpoLoss.HINGE:
        return max(0.0, 1 - margin)
    if loss is DpoLoss.IPO:
        return (margin / beta - 1 / (2 * beta)) ** 2
    return (1 - smoothing) * float(np.logaddexp(0, -margin)) + smoothing * float(np.logaddexp(0, margin))


@given(
    batches(),
    st.sampled_from([0.01, 0.1, 1.0]),
    st.sampled_from([(DpoLoss.SIGMOID, 0.0), (DpoLoss.SIGMOID, 0.3), (DpoLoss.HINGE, 0.0), (DpoLoss.IPO, 0.0)]),
)
def test_each_loss_and_its_derivatives_are_those_of_the_papers(
    rows: PairedLogprobs, beta: float, chosen_loss: tuple[DpoLoss, float]
) -> None:
    loss, smoothing = chosen_loss
    computed = preference_loss(rows, beta=beta, loss=loss, label_smoothing=smoothing)
    signs = np.where(rows.is_chosen.numpy(), 1.0, -1.0)
    ratios = (rows.policy - rows.reference).numpy() * signs
    pairs = sorted(set(rows.pair.tolist()))
    margins = [beta * float(ratios[rows.pair.numpy() == pair].sum()) for pair in pairs]
    expected = np.mean([margin_loss(loss, margin, beta, smoothing) for margin in margins])
    assert float(computed.loss) == pytest.approx(float(expected), rel=1e-6, abs=1e-6)
    for number, (pair, sign) in enumerate(zip(rows.pair.tolist(), signs, strict=True)):
        margin = margins[pairs.index(pair)]
        if loss is DpoLoss.HINGE:
            slope = -1.0 if margin < 1 else 0.0
        elif loss is DpoLoss.IPO:
            slope = 2 * (margin / beta - 1 / (2 * beta)) / beta
        else:
            slope = -(1 - smoothing) * np.exp(-np.logaddexp(0, margin)) + smoothing * np.exp(-np.logaddexp(0, -margin))
        assert float(computed.row_weights[number]) == pytest.approx(sign * beta * slope / len(pairs), rel=1e-6)


def of(policy: list[float], reference: list[float]) -> PairedLogprobs:
    """One pair of one row each, the better one first, ten tokens each."""
    sums = torch.tensor([policy, reference], dtype=torch.float64)
    return PairedLogprobs(sums[0], sums[1], torch.tensor([10, 10]), torch.tensor([0, 0]), torch.tensor([True, False]))


def test_before_the_first_step_the_loss_is_log_2_and_each_side_has_half_the_weight() -> None:
    computed = preference_loss(of([-30.0, -40.0], [-30.0, -40.0]), beta=0.1)
    assert float(computed.loss) == pytest.approx(math.log(2))
    assert computed.row_weights.tolist() == pytest.approx([-0.05, 0.05])
    assert computed.metrics["dpo/kl_k2"] == 0


@pytest.mark.parametrize(("better", "loss", "weight"), [(1e6, 0.0, 0.0), (-1e6, 1e5, -0.1)])
def test_extreme_ratios_neither_overflow_nor_lose_the_gradient(better: float, loss: float, weight: float) -> None:
    computed = preference_loss(of([better, 0.0], [0.0, 0.0]), beta=0.1)
    assert float(computed.loss) == pytest.approx(loss)
    assert float(computed.row_weights[0]) == pytest.approx(weight)


def test_metrics_are_of_the_implicit_rewards() -> None:
    computed: Any = preference_loss(of([-20.0, -50.0], [-30.0, -40.0]), beta=0.1)
    assert computed.metrics == pytest.approx(
        {
            "dpo/accuracy": 1.0,
            "dpo/margin": 2.0,
            "dpo/chosen_reward": 1.0,
            "dpo/rejected_reward": -1.0,
            "dpo/chosen_logprob": -20.0,
            "dpo/rejected_logprob": -50.0,
            "dpo/kl_k2": 5.0,
        }
    )

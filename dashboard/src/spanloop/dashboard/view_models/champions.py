"""The champions of a model and the candidates that they were compared with, as one series."""

from collections.abc import Sequence

import polars as pl

from spanloop.training.promotion.evidence import Decision
from spanloop.training.promotion.outcome import PromotionOutcome

SCHEMA = {
    "look": pl.Int64,
    "version": pl.String,
    "decision": pl.String,
    "value": pl.Float64,
    "champion": pl.String,
    "champion_value": pl.Float64,
    "why": pl.String,
}
FIRST = "champion"
"""The mark of the champion before the first decision, which nothing decided about."""


def champion_series(decisions: Sequence[Decision]) -> pl.DataFrame:
    """Return a row for each decision that compared two versions, oldest first, after a row for the first champion.

    Args:
        decisions: About versions of one model and one metric, newest first.

    Returns:
        Columns of ``SCHEMA``: the version with its mean of the metric and the outcome, and the champion after the
        decision with its mean in this comparison.
    """
    rows: list[tuple[int, str, str, float, str, float, str]] = []
    for decision in reversed(decisions):
        measured = decision.evidence.measured
        if measured is None:
            continue
        old = decision.champion, measured.champion
        new = decision.candidate, measured.candidate
        if not rows:
            rows.append((0, old[0], FIRST, old[1], *old, "It was there first."))
        # after a rollback the champion is the version that is not the candidate
        after = new if decision.outcome is PromotionOutcome.PROMOTED else old
        rows.append((len(rows), new[0], decision.outcome.value, new[1], *after, decision.evidence.reason))
    return pl.DataFrame(rows, SCHEMA, orient="row")


def basis_text(decisions: Sequence[Decision]) -> str:
    """Return which tasks or sessions the values of `champion_series` are means over."""
    compared = [each for each in decisions if each.evidence.measured is not None]
    counts = sorted({each.evidence.measured.count for each in compared if each.evidence.measured is not None})
    has_canary = any(each.evidence.canary for each in compared)
    has_tasks = not all(each.evidence.canary for each in compared)
    compared_on = " or ".join(
        (["the tasks that both versions attempted"] if has_tasks else [])
        + (["a canary's sessions"] if has_canary else [])
    )
    number = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return f"Each value is a mean over {compared_on} ({number}), not over all episodes of a version."

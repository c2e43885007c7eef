"""Whose failure it is, in episodes whose answers nobody who writes rules has read.

    python benchmarks/blind.py [--by-kind]

The cases (``failing``) are kinds of failure in several human languages, told in text alone and raised, and episodes
in which nothing failed or which got over it. Each is one conversion. Right is the owner with the class, where the case
has one; unknown is an owner that is not named, or no failure found where there is one; anything else is wrong.
``charged`` is the share of cases in which the policy is wrongly called the owner.
"""

import argparse
from collections import Counter
from typing import Final, Literal, NamedTuple

import polars as pl
from failing.build import spans_of
from failing.cases import CASES
from failing.model import Case, Expected

from spanloop.converters import convert, frames

Verdict = Literal["right", "unknown", "wrong"]
VERDICTS: Final = ("right", "unknown", "wrong")


class Named(NamedTuple):
    """What the converter says of one episode."""

    owner: str
    """Of what decided it, else of what it got over; empty where nothing failed."""
    error_class: str
    is_recovered: bool


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--by-kind", action="store_true", help="print each kind; whoever reads it has seen the answers")
    options = parser.parse_args()
    named = {case.id: attributed(case) for case in CASES}
    groups: dict[str, list[Case]] = {"all": list(CASES)}
    for case in CASES:
        keys = [f"how: {case.how}", f"language: {case.language}", f"owner: {case.expected.owner or 'nobody'}"]
        for key in [*keys, *([f"kind: {case.kind}"] if options.by_kind else [])]:
            groups.setdefault(key, []).append(case)
    print(f"{len(CASES)} cases of {len({case.kind for case in CASES})} kinds")
    print(f"  {'':<44} {' '.join(f'{verdict:>8}' for verdict in VERDICTS)}  charged    of")
    for key, cases in sorted(groups.items()):
        counts = Counter(judged(case.expected, named[case.id]) for case in cases)
        charged = sum(is_charged(case.expected, named[case.id]) for case in cases)
        shares = " ".join(f"{counts[verdict] / len(cases):8.1%}" for verdict in VERDICTS)
        print(f"  {key:<44} {shares} {charged / len(cases):8.1%}  {len(cases):4}")
    counts = Counter(judged(case.expected, named[case.id]) for case in CASES)
    charged = sum(is_charged(case.expected, named[case.id]) for case in CASES)
    told = {**{verdict: counts[verdict] for verdict in VERDICTS}, "charged": charged}
    print("ratio " + " ".join(f"blind_{name}={count / len(CASES):.3f}" for name, count in told.items()))


def attributed(case: Case) -> Named:
    """Convert one case's spans."""
    spans, scores = spans_of(case)
    schema = {
        name: pl.Int64() if name in {"Timestamp", "IngestedAt"} else dtype for name, dtype in frames.SPANS.items()
    }
    given = pl.DataFrame(spans, schema=schema).with_columns(
        pl.col("Timestamp").cast(frames.TIME_NS), pl.col("IngestedAt").cast(frames.TIME_US)
    )
    scored = frames.empty(frames.SCORES)
    if scores:
        scored = pl.DataFrame(scores).with_columns(
            pl.col("scored_at").cast(frames.TIME_NS), pl.col("ingested_at").cast(frames.TIME_US)
        )
    found = convert(given, scores=scored, generations=frames.empty(frames.GENERATIONS))
    [(owner, error_class)] = found.episodes.select("fault_owner", "error_class").rows()
    if owner:
        return Named(owner, error_class, is_recovered=False)
    recovered = found.failures.filter("is_recovered").select("fault_owner", "error_class").rows()
    for owner, error_class in recovered[:1]:
        return Named(owner, error_class, is_recovered=True)
    return Named("", "", is_recovered=False)


def judged(expected: Expected, named: Named) -> Verdict:
    """How right it is."""
    if expected.owner != named.owner:
        is_open = named.owner in {"", "unknown"} and expected.owner not in {"", "unknown"}
        return "unknown" if is_open else "wrong"
    if expected.recovered != named.is_recovered:
        return "wrong"
    return "right" if expected.failure_class in {"", named.error_class} else "wrong"


def is_charged(expected: Expected, named: Named) -> bool:
    """Whether the policy is wrongly called the owner, of something that the episode did not get over."""
    return named.owner == "policy" != expected.owner and not named.is_recovered


if __name__ == "__main__":
    main()

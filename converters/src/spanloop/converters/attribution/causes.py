"""From the first cause to the last symptom.

Invariant: the failure that decided an episode is the root of the chain that leads to how it ended. A failure leads to
a later one where the same tool failed in the same way (a mistake of the policy's only when nothing worked between: the
next one is a new mistake), or where the later one can be a mere consequence (the program
gave up, or was stopped) and nothing worked between the two. Of several chains that the episode did not get over, the
last one decided it, because after it nothing mended the outcome.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from spanloop.converters.enums import FaultOwner

from ..steps import Episode
from .base import ErrorClass
from .crash import CRASH
from .failure import Failure
from .recovery import made_progress

_MOST_LINKS: Final = 10


class Ending(NamedTuple):
    """The end of an episode: the symptom of its root cause."""

    step: int
    span_id: str
    what: str


def ending_of(episode: Episode, reward: float | None) -> Ending:
    """The symptom, in words."""
    last = episode.steps[-1]
    span = last.span
    if span.has_failed:
        what = f"the last model call failed: {span.exception.message or span.status_message or span.error_type}"
    elif not span.output:
        what = "the last model call gave no answer"
    elif span.output[0].tool_calls:
        what = "the episode stopped after a tool call"
    else:
        what = "the episode ended with an answer"
    return Ending(last.index, span.span_id, what if reward is None else f"{what}; reward {reward:g}")


def decisive(failures: Sequence[Failure]) -> Failure | None:
    """The failure that decided the episode: the root of the last chain that it did not get over."""
    chain = deciding_chain(failures)
    return chain[0] if chain else None


def deciding_chain(failures: Sequence[Failure]) -> list[Failure]:
    """The failures of the last chain that the episode did not get over, root first; empty without one.

    Args:
        failures: Of one episode, in the order of steps.
    """
    open_ones = [failure for failure in failures if not failure.is_recovered]
    if not open_ones:
        return []
    chain = [open_ones[-1]]
    for earlier in reversed(open_ones[:-1]):
        if _leads_to(earlier, chain[-1]):
            chain.append(earlier)
    return chain[::-1]


def _leads_to(earlier: Failure, later: Failure) -> bool:
    cause, effect = earlier.finding.error_class, later.finding.error_class
    if effect == ErrorClass.STEP_LIMIT and cause == ErrorClass.LOOP:
        return True
    gave_up = later.rule == CRASH and later.finding.owner is not FaultOwner.ENVIRONMENT
    if (gave_up or effect == ErrorClass.STEP_LIMIT) and earlier.progress == later.progress:
        return True
    if later.finding.owner is FaultOwner.POLICY and earlier.progress != later.progress:
        return False
    return (earlier.tool_name, cause) == (later.tool_name, effect)


def with_chains(episode: Episode, failures: Sequence[Failure], reward: float | None) -> tuple[Failure, ...]:
    """``failures`` with the chain that each belongs to in its evidence, from root cause to symptom."""
    if not failures:
        return ()
    failures = _with_progress(episode, failures)
    deciding = deciding_chain(failures)
    ending = ending_of(episode, reward)
    members = {id(failure) for failure in deciding}
    links = _links(deciding)
    links.append({"step": ending.step, "span_id": ending.span_id, "what": ending.what})
    chained: list[Failure] = []
    for failure in failures:
        failure_chain = links if id(failure) in members else [_link(failure)]
        if failure.is_recovered:
            failure_chain = [*failure_chain, {"what": "recovered"}]
        evidence = {**failure.finding.evidence, "chain": failure_chain}
        chained.append(replace(failure, finding=replace(failure.finding, evidence=evidence)))
    return tuple(chained)


def _with_progress(episode: Episode, failures: Sequence[Failure]) -> list[Failure]:
    failed = {failure.step.index for failure in failures}
    before: list[int] = []
    count = 0
    for step in episode.steps:
        before.append(count)
        count += step.index not in failed and made_progress(step)
    return [replace(failure, progress=before[failure.step.index]) for failure in failures]


def _links(chain: Sequence[Failure]) -> list[dict[str, object]]:
    """The links of a chain; of a long one its beginning and its end, because every member carries them."""
    if len(chain) <= _MOST_LINKS:
        return [_link(failure) for failure in chain]
    half = _MOST_LINKS // 2
    left_out: dict[str, object] = {"what": f"{len(chain) - 2 * half} more"}
    return [*map(_link, chain[:half]), left_out, *map(_link, chain[-half:])]


def _link(failure: Failure) -> dict[str, object]:
    return {
        "step": failure.step.index,
        "span_id": failure.span_id,
        "error_class": str(failure.finding.error_class),
        "owner": str(failure.finding.owner),
        "what": failure.finding.message[:200],
    }

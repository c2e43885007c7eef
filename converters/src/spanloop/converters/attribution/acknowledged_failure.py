"""Whether the policy, right after a call, says that something did not work: what it knew of it may be in no span."""

import re
from typing import Final

from ..steps import Episode, Step

_DID_NOT_WORK: Final = re.compile(
    r"\b(?:could|did|does|has|have|was|were|can|is|am)(?:n't| not) (?:\w+ ){0,2}?"
    r"(?:work|able|finish|complete|succeed|process|respond|return|go through|retrieve|confirm|reach|available)"
    r"|\bcannot (?:\w+ ){0,2}?(?:finish|complete|process|confirm|reach)|\bunable to\b|\bfailed\b|\bwent wrong\b"
    r"|\b(?:there (?:is|was|seems? to (?:be|have been)|appears? to (?:be|have been))|ran into|hit"
    r"|(?:encounter|experienc|hav|fac)(?:ed|ing)) (?:an?|some) (?:\w+ ){0,2}(?:problem|issue|error|trouble|failure)"
    r"|\bhaving (?:trouble|difficult)|\btechnical (?:difficult|error|issue|problem)|\bsystem (?:error|issue|problem)"
    r"|\b(?:got|received|returned|gave|giving) (?:no|nothing)\b|\btry again (?:later|in a)",
    re.IGNORECASE,
)
_WITHIN: Final = 500
"""Characters from the start of a message within which it is said."""


def acknowledgement_after(step: Step, episode: Episode) -> str:
    """The words in which the next message of the same conversation says so; empty without any, or where it acts on."""
    after = episode.steps[step.following].span if step.following is not None else None
    if after is None or not after.output or after.output[0].tool_calls:
        return ""
    found = _DID_NOT_WORK.search(after.output[0].text[:_WITHIN].replace("\u2019", "'"))
    return found.group(0) if found else ""

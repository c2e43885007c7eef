"""Whether the policy, right after a call, says that something did not work: what it knew of it may be in no span."""

from typing import Final

from ...errors.failure_patterns import failure_pattern
from ...steps import Episode, Step

_DID_NOT_WORK: Final = failure_pattern("acknowledged")
_WITHIN: Final = 500
"""Characters from the start of a message within which it is said."""


def acknowledgement_after(step: Step, episode: Episode) -> str:
    """The words in which the next message of the same conversation says so; empty without any, or where it acts on."""
    after = episode.steps[step.following].span if step.following is not None else None
    if after is None or not after.output or after.output[0].tool_calls:
        return ""
    match = _DID_NOT_WORK.search(after.output[0].text[:_WITHIN].replace("\u2019", "'"))
    return match.group(0) if match else ""

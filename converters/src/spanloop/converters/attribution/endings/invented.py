"""A failed episode in which the policy says that it goes on with data of its own making.

What it could not get it simulates, assumes or fills in, and says so: later steps compute with it as if it were true.
The first such message is named. It rests on the policy's own words, in its message or its code; that a figure is made
up without a word cannot be seen.
"""

from typing import ClassVar, Final

from spanloop.converters.enums import FaultOwner

from ...errors.failure_patterns import failure_pattern
from ...steps import Episode
from ..base import EndingRule, ErrorClass, Finding, LocatedFinding

_INVENTED: Final = failure_pattern("invented_data")

_HINTS: Final = (
    *("simulat", "hypothetical", "placeholder", "mock", "dummy", "made", "fictitious", "fake", "sample", "illustrat"),
    *("invented", "assum", "demonstration", "make up", "fabricate", "pretend", "guess"),
    *("fiktiv", "beispieldaten", "datos", "données", "数据", "データ"),
)
"""No message without one of these says so; looked for first, being quicker found."""


class InventedData(EndingRule):
    """The policy says that it continues with data that it made up."""

    is_choice: ClassVar[bool] = True

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding; None without one."""
        outputs = [(step, step.span.output[0]) for step in episode.steps if step.span.output]
        words = ["\n".join([output.text, *(call.arguments for call in output.tool_calls)]) for _, output in outputs]
        folded = "\n".join(words).casefold()
        if not any(hint in folded for hint in _HINTS):
            return None
        for (step, output), text in zip(outputs, words, strict=True):
            match = _INVENTED.search(text.replace("\u2019", "'"))
            if match is not None:
                evidence: dict[str, object] = {
                    "reward": repr(reward),
                    "said": match.group(0),
                    "message": output.text[:500],
                }
                message = "the policy says that it goes on with data of its own making"
                return LocatedFinding(
                    step, Finding(ErrorClass.INVENTED_DATA, FaultOwner.POLICY, 0.5, message, evidence), step.span
                )
        return None

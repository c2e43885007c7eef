"""An episode that ended in order and still failed: the answer was wrong, as far as the reward can tell."""

from typing import Final

from spanloop.semconv.enums import FaultOwner

from ..steps import Episode
from .base import EndingRule, ErrorClass, Finding


def _wrong(episode: Episode, reward: float | None) -> Finding | None:
    if reward is None:
        return None
    last = episode.steps[-1].span
    said = last.output[0].text if last.output else ""
    evidence = {"reward": repr(reward), "answer": said[:500]}
    message = f"the episode ended in order with reward {reward:g}"
    return Finding(ErrorClass.WRONG_ANSWER, FaultOwner.POLICY, 0.5, message, evidence)


WRONG_ANSWER: Final = EndingRule("wrong_answer", _wrong)

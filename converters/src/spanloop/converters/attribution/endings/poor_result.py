"""A failed episode in which a tool answered in order, and with nothing, or with data that break off in the middle.

The tool's, with a low confidence: an empty answer may be the truth, so only an answer without any content counts (an
empty list is an answer), of a tool that is asked for something (its name says so, or it answered another time), and
that the policy acted on: no later call of the same tool with the same arguments brought more. Of a tool that does
something it counts only where the policy, right after it, says that it did not work. An interpreter may print nothing.
"""

import json
import re
from typing import ClassVar, Final

from spanloop.converters.enums import FaultOwner
from spanloop.messages import ToolCall, parse_json_or_none

from ...steps import Episode
from ..base import EndingRule, ErrorClass, Finding, LocatedFinding
from ..tool_calls.running_code import runs_code
from ..tool_calls.tool_kinds import is_note, is_query, is_void
from .acknowledged_failure import acknowledgement_after

_CUT_MARK: Final = re.compile(
    r"(?:\s*(?:\.\.\.|\u2026|[\[(<]\s*(?:output |response |result )?truncated\b[^\])>]*[\])>]"
    r"|[\[(<][.\s]*\d[\d,]* more \w+[.\s]*[\])>]))+\s*$",
    re.IGNORECASE,
)

_CUT_WORDS: Final = re.compile(
    r"[\[(<{\u3010\uff08]\W*(?:\w+ ){0,3}(?:truncated|cut off|gek\u00fcrzt|abgeschnitten|truncad[oa]|recortad[oa]"
    r"|cortad[oa]|tronqu\u00e9e?"
    r"|\u5df2?\u622a\u65ad|\u4ee5\u4e0b\u7701\u7565|\u7701\u7565|\u5207\u308a\u6368\u3066)[^\])>\n]{0,40}[\])>}\u3011\uff09]\W*$",
    re.IGNORECASE,
)
"""A tool's mark, in brackets at the end, that it left out the rest."""
_NEAR_END: Final = 200
_SEPARATORS: Final = (",", ";", "\t", "|", "\uff0c", "\u3001")
_LEAST_ROWS: Final = 3


def _lacks_fields(content: str) -> bool:
    """Whether ``content`` is a table whose last row has fewer fields than all others."""
    rows = content.strip("\n").split("\n")
    if len(rows) < _LEAST_ROWS:
        return False
    counts = ([row.count(separator) for row in rows] for separator in _SEPARATORS)
    return any(len(set(count[:-1])) == 1 and count[-1] < count[0] for count in counts)


_CUT_NUMBER: Final = re.compile(r"-|\.|[eE][+-]?")


class PoorResult(EndingRule):
    """A tool answered without an error, and with nothing or with data that are cut off."""

    is_event: ClassVar[bool] = True

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding; None without one."""
        del reward
        whole: set[tuple[str, str]] = set()
        telling = {
            result.name
            for step in episode.steps
            for result in step.results
            if not result.is_error and not is_void(result.content)
        }
        spans = {span.key: span for span in episode.context}
        for step in reversed(episode.steps):
            for result in reversed(step.results):
                call = step.span.output[0].tool_calls[result.position]
                what = "" if result.is_error else _lack(call, result.content)
                acknowledgement = ""
                if what and not (call.name in telling or is_query(call.name)):
                    acknowledgement = acknowledgement_after(step, episode)
                    what = what if acknowledgement and not is_note(call.name) else ""
                if not what or (call.name, call.arguments) in whole:
                    whole.add((call.name, call.arguments))
                    continue
                evidence: dict[str, object] = {"arguments": call.arguments, "result": result.content[-500:]}
                if acknowledgement:
                    evidence["said"] = acknowledgement
                message = f"{call.name!r} answered {what}"
                confidence = 0.35 if acknowledgement else 0.45
                finding = Finding(ErrorClass.INCOMPLETE_RESULT, FaultOwner.TOOL, confidence, message, evidence)
                culprit = spans.get((result.trace_id, result.span_id), step.span)
                return LocatedFinding(step, finding, culprit, call.name)
        return None


def _lack(call: ToolCall, content: str) -> str:
    """Describe the defect of an answer; empty without one."""
    if runs_code(call):
        return ""
    if is_void(content):
        return "nothing"
    return "with data that break off" if _breaks_off(content) else ""


def _breaks_off(content: str) -> bool:
    if not content.lstrip().startswith(("{", "[")):
        return _CUT_WORDS.search(content[-_NEAR_END:]) is not None or _lacks_fields(content)
    if parse_json_or_none(content) is not None:
        return False
    text = _CUT_MARK.sub("", content).strip()
    if not text.startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated string") or _is_cut_word(text[error.pos :])
    except RecursionError:
        return False
    return False


def _is_cut_word(rest: str) -> bool:
    """Whether what could not be read is part of a literal or a number, up to the end of the text."""
    return any(word.startswith(rest) for word in ("true", "false", "null")) or _CUT_NUMBER.fullmatch(rest) is not None

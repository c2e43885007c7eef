"""One thing that went wrong in an episode, and what makes it the same as in another episode."""

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from ..steps import Step
from .base import Finding

_VALUES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-fA-F]{8,}\b|\b\w*-?\d[\w.:-]*")


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that went wrong in an episode."""

    step: Step
    trace_id: str
    span_id: str
    """The culprit: the model call when the policy is to blame, else the span that failed."""
    tool_name: str
    rule: str
    finding: Finding
    is_recovered: bool
    occurred_ns: int
    progress: int = 0
    """Steps before it at which everything worked."""

    @property
    def fingerprint(self) -> str:
        """The same for the same failure in any episode: numbers, ids and quoted values do not count."""
        shape = _VALUES.sub("#", self.finding.message[:400])
        text = f"{self.finding.error_class}\0{self.finding.owner}\0{self.tool_name}\0{self.rule}\0{shape}"
        return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()

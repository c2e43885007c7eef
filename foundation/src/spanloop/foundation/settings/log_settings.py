"""``[logging]`` of ``spanloop.toml``."""

from typing import Literal

from .section import Section


class Logging(Section):
    """``[logging]``: the logs of all roles."""

    format: Literal["text", "json"] = "text"
    """``json`` writes one object a line, with the trace ids of requests and jobs; ``SPANLOOP_LOG_FORMAT`` and
    ``--log-format`` replace it."""

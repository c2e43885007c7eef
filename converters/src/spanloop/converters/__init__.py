"""Spans → episodes → transitions, with rewards, causes of failure and exact token rows.

Pure: frames in, frames out. Rules that will grow in number are folders of small modules (``dialects``, ``linking``,
``attribution``, ``rewards``): ``base`` says what a rule is, one module each, one line in the registry.
"""

from .convert import CONTEXT, Converted, convert
from .options import CONVERTER_VERSION, Options

__all__ = ["CONTEXT", "CONVERTER_VERSION", "Converted", "Options", "convert"]

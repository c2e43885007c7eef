"""Dialects: how each family of instrumentors spells its spans. One module each, one line in the registry."""

from typing import Final

from .base import CANONICAL, Dialect, attr, column_of
from .openllmetry import OPENLLMETRY
from .otel_genai import OTEL_GENAI

DIALECTS: Final = (OPENLLMETRY, OTEL_GENAI)
"""In order of precedence."""

__all__ = ["CANONICAL", "DIALECTS", "Dialect", "attr", "column_of"]

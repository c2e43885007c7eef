"""The registry of exports."""

from collections.abc import Mapping
from typing import Final

from .base import Kind
from .openai_chat import OPENAI
from .preferences import PREFERENCES
from .tables import PARQUET, VERL

KINDS: Final[Mapping[str, Kind]] = {
    "openai": OPENAI,
    "preferences": PREFERENCES,
    "parquet": PARQUET,
    "verl": VERL,
}

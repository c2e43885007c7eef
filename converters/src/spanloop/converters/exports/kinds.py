"""The registry of exports."""

from collections.abc import Mapping
from typing import Final

from .atif import ATIF
from .base import Kind
from .openai_chat import OPENAI
from .preferences import PREFERENCES
from .sharegpt import SHAREGPT
from .tables import JSONL, PARQUET, VERL

KINDS: Final[Mapping[str, Kind]] = {
    "openai": OPENAI,
    "sharegpt": SHAREGPT,
    "jsonl": JSONL,
    "atif": ATIF,
    "preferences": PREFERENCES,
    "parquet": PARQUET,
    "verl": VERL,
}

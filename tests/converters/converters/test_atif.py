"""ATIF in and out: an episode that is exported, imported and converted again has the same steps."""

import json
from typing import Any

import polars as pl
import pytest

from spanloop.collector.otlp.json_encoding import decode_traces  # noqa: F401 - the importer's own path
from spanloop.converters.exports import KINDS, ExportOptions
from spanloop.importing.atif import is_atif
from spanloop.importing.conversations import ConversationReader
from spanloop.importing.report import BadItemError
from spanloop.semconv import atif

from .converters_recordings import OWN, RECORDINGS, load, span_frame
from .converters_world import OPENING, World, answers, asks, convert, exported_transitions, text, trace_id
from .otlp_json import span_rows

NAMES = sorted({path.stem for folder in (OWN, RECORDINGS) if folder.exists() for path in folder.glob("*.json")})
SAME = ("state", "action", "tools", "model", "reward", "finish_reason", "prompt_token_ids", "response_token_ids")


def documents(rows: pl.DataFrame) -> list[dict[str, Any]]:
    made = KINDS["atif"].make(rows, ExportOptions())
    assert made.accepted + sum(made.rejected.values()) == rows.height
    assert isinstance(made.rows, list)
    return [json.loads(line) for line in made.rows]

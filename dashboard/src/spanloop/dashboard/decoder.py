"""Token ids as text, where that is possible: the version's folder has a tokenizer.json and ``tokenizers`` is installed.

The dashboard's own extra does not bring ``tokenizers``; the training extra does. Without it ids are shown.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUntypedFunctionDecorator=false

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import streamlit as st

from spanloop.dashboard import resources
from spanloop.semconv.errors import ConfigurationError, JobError


def texts(policy_version: str, token_ids: Sequence[int]) -> list[str] | None:
    """The text of each token by itself; None when the version is not registered or cannot be read here."""
    try:
        folder = resources.registry().get(policy_version).path
    except (ConfigurationError, JobError):
        # Traces of a foreign model carry names that were never registered.
        return None
    file = folder / "tokenizer.json"
    if find_spec("tokenizers") is None or not file.is_file():
        return None
    tokenizer = _load(file)
    return [tokenizer.decode([token_id], skip_special_tokens=False) for token_id in token_ids]


@st.cache_resource(show_spinner=False, max_entries=4)
def _load(file: Path) -> Any:
    return import_module("tokenizers").Tokenizer.from_file(str(file))

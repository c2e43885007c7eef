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
    if why_not(policy_version):
        return None
    tokenizer = _load(_file(policy_version))
    return [_text(tokenizer, token_id) for token_id in token_ids]


def why_not(policy_version: str) -> str:
    """Why tokens of that version have no text here; empty when they have."""
    if find_spec("tokenizers") is None:
        return "the package tokenizers is not installed (pip install 'spanloop[train]')"
    try:
        file = _file(policy_version)
    except (ConfigurationError, JobError):
        # Traces of a foreign model carry names that were never registered.
        return f"{policy_version or 'the policy'} is not in the model registry, so its tokenizer is not known"
    return "" if file.is_file() else f"the folder of {policy_version} has no tokenizer.json"


def _text(tokenizer: Any, token_id: int) -> str:
    text: str = tokenizer.decode([token_id], skip_special_tokens=False)
    # A token that is a part of a character has no text of its own: the vocabulary's name of it says more than a box.
    return tokenizer.id_to_token(token_id) or text if "\N{REPLACEMENT CHARACTER}" in text else text


def _file(policy_version: str) -> Path:
    return resources.registry().get(policy_version).path / "tokenizer.json"


@st.cache_resource(show_spinner=False, max_entries=4)
def _load(file: Path) -> Any:
    return import_module("tokenizers").Tokenizer.from_file(str(file))

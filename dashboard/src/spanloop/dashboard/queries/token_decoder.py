"""Decode token ids with the tokenizer.json of a registered model version.

The extra ``dashboard`` does not install ``tokenizers``; the extra ``train`` does. Without it pages show ids.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUntypedFunctionDecorator=false

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import streamlit as st

from spanloop.dashboard import resources
from spanloop.foundation.errors import ConfigurationError, JobError


def decode_tokens(policy_version: str, token_ids: Sequence[int]) -> list[str] | None:
    """Return the text of each token, decoded alone; None when `undecodable_reason` gives a reason."""
    if undecodable_reason(policy_version):
        return None
    tokenizer = _load_tokenizer(_tokenizer_file(policy_version))
    return [_decode_token(tokenizer, token_id) for token_id in token_ids]


def undecodable_reason(policy_version: str) -> str:
    """Return why tokens of the version cannot be decoded; empty when they can."""
    if find_spec("tokenizers") is None:
        return "the package tokenizers is not installed (pip install '/path/to/spanloop[train]')"
    try:
        file = _tokenizer_file(policy_version)
    except (ConfigurationError, JobError):
        # Traces of models that spanloop did not train name versions that were never registered.
        return f"{policy_version or 'the policy'} is not in the model registry, so its tokenizer is not known"
    return "" if file.is_file() else f"the folder of {policy_version} has no tokenizer.json"


def _decode_token(tokenizer: Any, token_id: int) -> str:
    text: str = tokenizer.decode([token_id], skip_special_tokens=False)
    # A token that is part of a character decodes to U+FFFD; its vocabulary entry is more useful.
    return tokenizer.id_to_token(token_id) or text if "\N{REPLACEMENT CHARACTER}" in text else text


def _tokenizer_file(policy_version: str) -> Path:
    registry = resources.registry()
    return registry.folder(registry.get(policy_version), weights=False) / "tokenizer.json"


@st.cache_resource(show_spinner=False, max_entries=4)
def _load_tokenizer(file: Path) -> Any:
    return import_module("tokenizers").Tokenizer.from_file(str(file))

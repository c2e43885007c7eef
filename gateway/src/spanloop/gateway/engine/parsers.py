"""The parsers with which vLLM reads tool calls and reasoning in a model's text, by the model's family.

Invariant: a family that the table does not name gets the parser of Hermes, whose form most chat templates use. The
settings ``tool_call_parser`` and ``reasoning_parser`` replace the table's.
"""

import json
from pathlib import Path
from typing import Final, NamedTuple

from ..client.json_codec import as_object

NO_PARSER: Final = "none"
"""The value of a setting that starts vLLM without a parser."""


class Parsers(NamedTuple):
    """Names of vLLM's parsers."""

    tool_call: str
    """``--tool-call-parser``; empty for none."""
    reasoning: str = ""
    """``--reasoning-parser``; empty leaves thinking in the text."""


class _Family(NamedTuple):
    model_types: frozenset[str]
    """Values of ``model_type`` in ``config.json``."""
    parsers: Parsers
    template_part: str = ""
    """A part of the chat template that tells families of one type apart."""


_DEFAULT: Final = Parsers("hermes")
_QWEN: Final = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe"})
_FAMILIES: Final = (
    # From the documentation of vLLM 0.32; the first that matches counts. Mistral's parser is left out: it constrains
    # every request by a grammar, and constrained rows train no policy.
    _Family(_QWEN, Parsers("qwen3_coder"), "<function="),
    _Family(_QWEN, _DEFAULT),
    _Family(frozenset({"llama"}), Parsers("llama3_json"), "<|start_header_id|>"),
    _Family(frozenset({"llama4"}), Parsers("llama4_pythonic")),
    _Family(frozenset({"gpt_oss"}), Parsers("openai", "openai_gptoss")),
    _Family(frozenset({"glm4_moe"}), Parsers("glm45", "glm45")),
    _Family(frozenset({"glm4_moe_lite"}), Parsers("glm47", "glm45")),
    _Family(frozenset({"granite"}), Parsers("granite")),
    _Family(frozenset({"granitemoehybrid"}), Parsers("granite4")),
    _Family(frozenset({"kimi_k2"}), Parsers("kimi_k2", "kimi_k2")),
    _Family(frozenset({"minimax_m2"}), Parsers("minimax_m2", "minimax_m2")),
    _Family(frozenset({"seed_oss"}), Parsers("seed_oss", "seed_oss")),
    _Family(frozenset({"gemma4"}), Parsers("gemma4", "gemma4")),
    _Family(frozenset({"lfm2"}), Parsers("lfm2")),
    _Family(frozenset({"olmo3"}), Parsers("olmo3")),
    _Family(frozenset({"apertus"}), Parsers("apertus")),
)


def parsers_of(model_path: Path, *, tool_call: str = "", reasoning: str = "") -> Parsers:
    """Return the parsers for a model folder.

    Args:
        model_path: The folder; one that cannot be read counts as of an unknown family.
        tool_call: Replaces the table's; ``none`` for no parser.
        reasoning: As ``tool_call``.
    """
    family = _family_of(model_path)
    return Parsers(_replaced(family.tool_call, tool_call), _replaced(family.reasoning, reasoning))


def _replaced(default: str, setting: str) -> str:
    return "" if setting == NO_PARSER else setting or default


def _family_of(model_path: Path) -> Parsers:
    model_type = _json(model_path / "config.json").get("model_type")
    for family in _FAMILIES:
        if model_type in family.model_types and family.template_part in _template(model_path):
            return family.parsers
    return _DEFAULT


def _template(model_path: Path) -> str:
    """Return the chat template, from its own file or from the tokenizer's configuration; empty without one."""
    try:
        return (model_path / "chat_template.jinja").read_text(encoding="utf-8")
    except (OSError, ValueError):
        # A configuration can hold one template, or several by name.
        return json.dumps(_json(model_path / "tokenizer_config.json").get("chat_template") or "")


def _json(path: Path) -> dict[str, object]:
    try:
        return as_object(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return {}

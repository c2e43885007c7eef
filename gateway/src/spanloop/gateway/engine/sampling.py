"""Settings of an engine that change what its requests sample.

Invariant: a setting that is known to constrain is in the capture of every request that it applies to. Settings that an
engine does not tell are absent: the tool parser of a server that the gateway did not start, and all settings of one
without ``/server_info``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, cast

_GENERATION_DEFAULTS: Final = (
    "repetition_penalty", "presence_penalty", "frequency_penalty", "temperature", "top_k", "top_p", "min_p",
)  # fmt: skip
"""Keys of a generation configuration that vLLM takes as defaults (``ModelConfig.get_diff_sampling_param``)."""
_OPTIONS: Final = (
    "generation-config", "override-generation-config", "logprobs-mode", "logits-processors", "watermark-config",
    "speculative-config", "tool-strict-level", "tool-call-parser", "reasoning-parser", "model", "config",
)  # fmt: skip
_OTHER_OPTIONS: Final = frozenset({"watermark"})
"""Options of vLLM whose names are the beginning of one above."""
_SHORT_OPTIONS: Final = {"-sc": "speculative-config"}
_LEAST_ABBREVIATION: Final = 6
_LOSSLESS_REJECTION: Final = frozenset({"standard", "block"})
"""Methods of speculative decoding whose tokens have the target model's distribution."""
_CONSTRAINING_PARSERS: Final = frozenset({"mistral"})
"""Parsers that constrain every request by a grammar."""
_TOOL_CONSTRAINING_PARSERS: Final = frozenset({"glm45", "glm47", "cohere_command3", "cohere_command4"})
"""Parsers that constrain the tool calls of every request that offers tools, strict or not."""


@dataclass(frozen=True, slots=True)
class EngineSampling:
    """Parameters that an engine sets, as texts like those of a capture."""

    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of parameters that a request leaves out."""
    always: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of every request, whatever it asks for."""
    with_tools: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of requests that offer tools and do not forbid their use."""

    @classmethod
    def of_command(cls, command: Sequence[str]) -> Self:
        """Read the options of a vLLM command line; the last of several equal ones counts."""
        options = _read_options(command)
        strict_level, parsers = options.get("tool-strict-level"), _parsers(options)
        always, with_tools = _always(options), dict[str, str]()
        if strict_level not in {None, "auto"}:
            with_tools["tool_strict_level"] = str(strict_level)
        if constraining := parsers & _CONSTRAINING_PARSERS:
            always["tool_call_parser"] = min(constraining)
        if constraining := parsers & _TOOL_CONSTRAINING_PARSERS:
            with_tools["tool_call_parser"] = min(constraining)
        if "config" in options:
            # A file of further options, which are not read.
            always["config"] = str(options["config"])
        return cls(_defaults(options), always, with_tools)

    @classmethod
    def of_server_info(cls, document: Mapping[str, Any]) -> Self:
        """Read vLLM's ``/server_info?config_format=json``."""
        config = _object(document.get("vllm_config"))
        model = _object(config.get("model_config"))
        options = {name: model.get(name.replace("-", "_")) for name in _OPTIONS}
        options |= {name: config.get(name.replace("-", "_")) for name in ("watermark-config", "speculative-config")}
        return cls(_defaults(options), _always(options))

    @property
    def settings(self) -> dict[str, str]:
        """All of them."""
        return {**self.defaults, **self.with_tools, **self.always}


def _defaults(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the engine's defaults; a configuration that cannot be read is one of them, so that it is not neutral."""
    source = str(options.get("generation-config") or "auto")
    unread: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    if source != "vllm":
        folder = Path(str(options.get("model") or "") if source == "auto" else source)
        try:
            defaults = _read_generation_config(folder)
        except (OSError, ValueError):
            unread["generation_config"] = source
    overrides: object = options.get("override-generation-config")
    defaults |= _object(overrides)
    if overrides and not isinstance(overrides, dict):
        unread["override_generation_config"] = str(overrides)
    known = {name: json.dumps(defaults[name]) for name in _GENERATION_DEFAULTS if defaults.get(name) is not None}
    if options.get("watermark-config"):
        known["watermarking"] = "true"
    return known | unread


def _read_generation_config(folder: Path) -> dict[str, Any]:
    """Return a folder's generation configuration; empty for a model folder without one.

    Raises:
        OSError: The folder is not on this host.
        ValueError: It is no JSON.
    """
    path = folder / "generation_config.json"
    if not path.exists() and (folder / "config.json").exists():
        return {}
    return _object(json.loads(path.read_bytes()))


def _always(options: Mapping[str, Any]) -> dict[str, str]:
    method = str(_object(options.get("speculative-config")).get("rejection_sample_method") or "standard")
    always = {
        "logprobs_mode": str(options.get("logprobs-mode") or "raw_logprobs"),
        "logits_processors": _joined(options.get("logits-processors")),
        "rejection_sample_method": "" if method in _LOSSLESS_REJECTION else method,
    }
    if always["logprobs_mode"] == "processed_logprobs":
        del always["logprobs_mode"]
    return {name: value for name, value in always.items() if value}


def _joined(values: object) -> str:
    """Return names of logits processors as one text; empty without any."""
    return " ".join(map(str, cast("list[object]", values))) if isinstance(values, list) else str(values or "")


def _parsers(options: Mapping[str, Any]) -> set[str]:
    return {str(options.get("tool-call-parser")), str(options.get("reasoning-parser"))}


def _read_options(command: Sequence[str]) -> dict[str, Any]:
    """Return the value of each known option: a text, or an object where vLLM takes JSON (``--NAME.KEY VALUE`` too)."""
    options: dict[str, Any] = {}
    for argument, values in _split_options(command):
        name, has_value, value = argument.partition("=")
        option, _, key = name.partition(".")
        known = _known_option(option)
        if known is None:
            continue
        text = value if has_value else " ".join(values)
        read = _json_or_text(text)
        if key:
            options[known] = {**_object(options.get(known)), key.rstrip("+"): read}
        else:
            options[known] = read if isinstance(read, dict) else text
    return options


def _split_options(command: Sequence[str]) -> Iterable[tuple[str, list[str]]]:
    """Yield each option with the arguments up to the next one."""
    option, values = "", list[str]()
    for argument in command:
        if argument.startswith("--") or argument in _SHORT_OPTIONS:
            yield option, values
            option, values = argument, []
        else:
            values.append(argument)
    yield option, values


def _known_option(argument: str) -> str | None:
    """Return the option that an argument names, whole or abbreviated; None for one that does not change sampling."""
    name = argument.removeprefix("--").replace("_", "-")
    if argument in _SHORT_OPTIONS:
        return _SHORT_OPTIONS[argument]
    if name in _OPTIONS:
        return name
    if name in _OTHER_OPTIONS or len(name) < _LEAST_ABBREVIATION:
        return None
    return next((option for option in _OPTIONS if option.startswith(name)), None)


def _object(value: object) -> dict[str, Any]:
    """Return a JSON object; empty for another value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text

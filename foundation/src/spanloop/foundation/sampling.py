"""Request parameters of chat completions by their effect on sampling: those of vLLM 0.32 and of OpenAI's API.

The gateway records the parameters of a request, and training decides by them whether a row was sampled from the
policy's own distribution.

Invariant: a parameter that no table names constrains sampling. So a parameter that an engine adds later is recorded and
keeps rows out of policy gradients, until it is added here.
"""

import json
from collections.abc import Mapping
from typing import Final

TEMPERATURE: Final = "temperature"
"""Scales the distribution; importance ratios are computed at it, so it is neither neutral nor constraining."""

_PROMPT: Final = frozenset(
    {
        "messages", "model", "tools", "echo", "add_generation_prompt", "continue_final_message", "add_special_tokens",
        "documents", "chat_template", "chat_template_kwargs", "reasoning_effort", "verbosity", "media_io_kwargs",
        "mm_processor_kwargs", "truncate_prompt_tokens", "truncation_side",
    }
)  # fmt: skip
"""They make the prompt, whose token ids are captured. Strict tools are recorded as ``strict_tools``."""

_RESPONSE_FORM: Final = frozenset(
    {
        "stream", "stream_options", "stream_interval", "logprobs", "top_logprobs", "prompt_logprobs",
        "logprob_token_ids", "include_reasoning", "include_stop_str_in_output", "skip_special_tokens",
        "spaces_between_special_tokens", "return_token_ids", "return_tokens_as_token_ids", "return_token_offsets",
        "return_prompt_text", "return_mm_kwargs", "mm_payload", "routed_experts_prompt_start",
    }
)  # fmt: skip
"""They choose what the response shows of the sampled tokens."""

_TRANSPORT: Final = frozenset(
    {"priority", "request_id", "session_id", "cache_salt", "kv_transfer_params", "ec_transfer_params"}
)
"""They choose when and where the same distribution is computed."""

_NOT_USED: Final = frozenset(
    {
        "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "prediction",
    }
)  # fmt: skip
"""OpenAI's parameters that vLLM ignores."""

_LENGTH: Final = frozenset(
    {
        "seed", "n", "max_tokens", "max_completion_tokens", "stop", "stop_token_ids", "ignore_eos",
        "repetition_detection", "length_penalty",
    }
)  # fmt: skip
"""They choose which samples are drawn and where they end, not the probabilities of a token; ``length_penalty`` is used
by beam search alone."""

UNRECORDED: Final = _PROMPT | _RESPONSE_FORM | _TRANSPORT | _NOT_USED
"""Neutral parameters that captures leave out."""

NEUTRAL_VALUES: Final[Mapping[str, tuple[object, ...]]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_tokens": (0,),
    "logit_bias": ({},),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "tool_choice": ("auto", "none"),
    "parallel_tool_calls": (True,),
    "use_beam_search": (False,),
    "watermarking": (False,),
    "thinking_token_budget": (-1,),
    "vllm_xargs": ({},),
    "modalities": (["text"],),
    "logprobs_mode": ("processed_logprobs",),
}
"""Constraining parameter → its values that leave the distribution as it is."""

RECORDED: Final = frozenset({TEMPERATURE, *_LENGTH, *NEUTRAL_VALUES})
"""Known parameters that captures have."""


def constraining(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the parameters that changed the distribution that tokens were sampled from, sorted.

    Args:
        parameters: Recorded parameters as JSON text; texts are as they are.
    """
    values = {name: parse_value(text) for name, text in parameters.items()}
    neutral = UNRECORDED | _LENGTH | {TEMPERATURE}
    return tuple(sorted(name for name in values.keys() - neutral if not _is_neutral(name, values)))


def parse_value(text: str) -> object:
    """Return the value of a recorded parameter; a text that is no JSON is itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _is_neutral(name: str, values: Mapping[str, object]) -> bool:
    if name == "logprobs_mode" and values[name] == "raw_logprobs":
        # Raw log-probabilities are those before the temperature.
        return values.get(TEMPERATURE, 1) == 1
    return values[name] in NEUTRAL_VALUES.get(name, ())

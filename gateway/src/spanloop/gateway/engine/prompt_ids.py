"""The two ways in which engines take the ids of a prompt: vLLM's chats, and ``/v1/completions`` of any server.

Invariant: an answer has the form of a chat either way. ``/v1/completions`` parses neither calls nor thinking and knows
fewer fields, so a request that needs more is not sent there; the engine then renders it as a chat.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ..chat.request import ChatRequest
from ..chat.request_body import nested_too_deep
from ..client.json_codec import as_list, as_object, encode_json

_SAMPLING: Final = frozenset(
    {
        "stream", "stream_options", "n", "seed", "stop", "temperature", "top_p", "top_k", "min_p", "frequency_penalty",
        "presence_penalty", "repetition_penalty", "length_penalty", "logit_bias", "stop_token_ids", "min_tokens",
        "ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens",
        "allowed_token_ids", "bad_words", "priority", "user",
    }
)  # fmt: skip
"""Fields that mean the same to ``/v1/completions`` as to a chat."""
_RENDERING: Final = frozenset({"messages", "chat_template", "chat_template_kwargs", "add_generation_prompt"})
"""Fields that only the rendering reads."""
_WITHOUT_EFFECT: Final = frozenset(
    {"model", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "return_token_ids"}
)
_LENGTHS: Final = ("max_completion_tokens", "max_tokens")


class PromptIdsRoute(Protocol):
    """How one engine renders chats to token ids, and answers a chat whose prompt is ids."""

    path: str
    """Where requests with ids go."""
    render_path: str
    limits: str
    """Why some requests are rendered by the engine; empty where none is."""

    def accepts(self, request: ChatRequest) -> bool:
        """Return whether a request is answered as the chat API would."""
        ...

    def render_body(self, request: ChatRequest, served_name: str) -> bytes:
        """Return the body that asks for a request's ids."""
        ...

    def rendered(self, document: Any) -> Any:
        """Return the ids in the answer. LookupError, TypeError: it has none."""
        ...

    def body(
        self, request: ChatRequest, token_ids: Sequence[int], served_name: str, max_model_len: int | None
    ) -> bytes | None:
        """Return the body of a request whose prompt is ids; None where the engine has no room for an answer."""
        ...

    def to_chat(self, document: dict[str, Any], *, is_stream: bool) -> dict[str, Any]:
        """Return a response, or a chunk of a stream, in the form of a chat."""
        ...


def prompt_ids_field(token_ids: Sequence[int]) -> dict[str, Any]:
    """Return the field of a chat request that gives its prompt as token ids.

    vLLM then renders no messages; everything else is as in any chat (``OnlineRenderer._reused_prompt_token_ids``).
    """
    return {"kv_transfer_params": {"prompt_token_ids": list(token_ids)}}


class ByChat:
    """vLLM 0.32 and newer with ``--enable-scale-out``."""

    path = ChatRequest.path
    render_path = "/v1/chat/completions/render"
    limits = ""

    def accepts(self, request: ChatRequest) -> bool:  # noqa: ARG002 - as in the protocol
        """Return True: it is the chat API."""
        return True

    def render_body(self, request: ChatRequest, served_name: str) -> bytes:
        """Return the request."""
        return request.for_engine(served_name)

    def rendered(self, document: Any) -> Any:
        """Return the ids."""
        return document["token_ids"]

    def body(
        self,
        request: ChatRequest,
        token_ids: Sequence[int],
        served_name: str,
        max_model_len: int | None,  # noqa: ARG002 - as in the protocol
    ) -> bytes | None:
        """Return the request with ids beside its messages."""
        return request.for_engine(served_name, prompt_ids_field(token_ids))

    def to_chat(self, document: dict[str, Any], *, is_stream: bool) -> dict[str, Any]:  # noqa: ARG002
        """Return it as it is."""
        return document


class ByCompletions:
    """A server with vLLM's ``/tokenize`` whose ``/v1/completions`` takes and returns ids, such as an older vLLM."""

    path = "/v1/completions"
    render_path = "/tokenize"
    limits = (
        "the engine takes token ids by /v1/completions only, so requests with tools, structured output or logprobs "
        "send their messages"
    )

    def accepts(self, request: ChatRequest) -> bool:
        """Return whether the request needs no parser, no grammar and no field of chats alone."""
        known = _SAMPLING | _RENDERING | _WITHOUT_EFFECT | {*_LENGTHS}
        return not any(value for name, value in request.document.items() if name not in known)

    def render_body(self, request: ChatRequest, served_name: str) -> bytes:
        """Return the messages and what their rendering depends on."""
        fields = {name: value for name, value in request.document.items() if name in _RENDERING and value is not None}
        return _encode({**fields, "model": served_name})

    def rendered(self, document: Any) -> Any:
        """Return the ids."""
        return document["tokens"]

    def body(
        self, request: ChatRequest, token_ids: Sequence[int], served_name: str, max_model_len: int | None
    ) -> bytes | None:
        """Return the request of a text completion; a chat without a limit may fill the rest of the context."""
        limits = (request.document.get(name) for name in _LENGTHS)
        room = None if max_model_len is None else max_model_len - len(token_ids)
        max_tokens = next((limit for limit in limits if limit is not None), room)
        if max_tokens is None or (room is not None and room < 1):
            return None
        fields = {name: value for name, value in request.document.items() if name in _SAMPLING}
        added = {"max_tokens": max_tokens, "logprobs": 0, "return_token_ids": True}
        return _encode({**fields, **added, "model": served_name, "prompt": list(token_ids)})

    def to_chat(self, document: dict[str, Any], *, is_stream: bool) -> dict[str, Any]:
        """Return a text completion as a chat; an error stays as it is."""
        if "choices" not in document:
            return document
        choices: list[dict[str, Any]] = document["choices"] or []
        prompt = next((each["prompt_token_ids"] for each in choices if each.get("prompt_token_ids")), None)
        kind, part = ("chat.completion.chunk", "delta") if is_stream else ("chat.completion", "message")
        response_id = f"chat{str(document['id']).removeprefix('chat')}"
        converted = [_to_chat(each, part) for each in choices]
        return {**document, "id": response_id, "object": kind, "prompt_token_ids": prompt, "choices": converted}


def _encode(body: Mapping[str, Any]) -> bytes:
    try:
        return encode_json(body)
    except RecursionError as error:
        raise nested_too_deep() from error


def _to_chat(choice: Mapping[str, Any], part: str) -> dict[str, Any]:
    logprobs = as_object(choice.get("logprobs"))
    tokens = zip(as_list(logprobs.get("tokens")), as_list(logprobs.get("token_logprobs")), strict=False)
    content = [
        {"token": token, "logprob": value, "bytes": list(str(token).encode()), "top_logprobs": []}
        for token, value in tokens
    ]
    # Clients join the deltas of a stream, so only the first one, which has the ids of the prompt, names the role.
    role = {"role": "assistant"} if part == "message" or choice.get("prompt_token_ids") else {}
    return {
        "index": choice["index"],
        part: {**role, "content": choice.get("text") or ""},
        "logprobs": {"content": content},
        "finish_reason": choice.get("finish_reason"),
        "stop_reason": choice.get("stop_reason"),
        "token_ids": choice.get("token_ids"),
    }


BY_CHAT: Final = ByChat()
BY_COMPLETIONS: Final = ByCompletions()

"""A stand-in for vLLM that renders chats with a real tokenizer, and samples given texts in tokens of its own choice."""
# tokenizers is only partly typed, and a stand-in's documents are JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import Tokenizer

from .chat_templates import Renderer, make_tokenizer
from .support import StandIn, _event, write_model

TOKENIZER = make_tokenizer()


def write_rendering_model(folder: Path, weights: int = 1, tokenizer: Tokenizer = TOKENIZER) -> Path:
    """A model folder with a tokenizer."""
    write_model(folder, weights)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@dataclass
class RenderingEngine(StandIn):
    """Answers each chat with the next of ``texts``."""

    family: str = "qwen2.5"
    tokenizer: Tokenizer = TOKENIZER
    texts: list[str] = field(default_factory=list[str])
    calls_of: list[dict[str, Any] | None] = field(default_factory=list[dict[str, Any] | None])
    """Tool calls of the answers, parallel to ``texts``."""
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    renders: int = 0

    def app(self) -> Starlette:
        app = super().app()
        app.router.routes[:0] = [
            Route("/v1/chat/completions/render", self._render, methods=["POST"]),
            Route("/v1/completions", self._complete, methods=["POST"]),
            Route("/tokenize", self._tokenize, methods=["POST"]),
        ]
        return app

    @property
    def renderer(self) -> Renderer:
        return Renderer(self.tokenizer, self.family)

    def text_of(self, token_ids: list[int]) -> str:
        text: str = self.tokenizer.decode(token_ids, skip_special_tokens=False)
        return text

    async def _tokenize(self, request: Request) -> Response:
        body = await request.json()
        ids = self.renderer.ids(body["messages"]) if "messages" in body else self.renderer.encode(body["prompt"])
        return JSONResponse({"count": len(ids), "max_model_len": 64, "tokens": ids, "model": body["model"]})

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        if "prompt_logprobs" in body:
            return await self._probe(request)
        self.requests.append(body)
        prompt = body["prompt"] if isinstance(body["prompt"], list) else self.renderer.encode(body["prompt"])
        choice = {
            "index": 0,
            "text": "found",
            "logprobs": {"tokens": ["f", "ound"], "token_logprobs": [-0.5, -0.25], "top_logprobs": None},
            "finish_reason": "length",
            "token_ids": [5, 6],
            "prompt_token_ids": prompt,
        }
        head = {"id": f"cmpl-{next(self._ids)}", "object": "text_completion", "created": 1, "model": "stand-in"}
        document = {**head, "choices": [choice]}
        if body.get("stream"):
            return StreamingResponse(iter([_event(document), "data: [DONE]\n\n"]), media_type="text/event-stream")
        return JSONResponse(document)

    async def _render(self, request: Request) -> Response:
        self.renders += 1
        return JSONResponse({"token_ids": self.renderer.ids((await request.json())["messages"])})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        exact = (body.get("kv_transfer_params") or {}).get("prompt_token_ids")
        prompt: list[int] = exact or self.renderer.ids(body["messages"])
        if body["messages"] == [{"role": "user", "content": "Hello"}]:  # the gateway's probe
            return JSONResponse({"id": "probe", "choices": [], "prompt_token_ids": prompt})
        self.requests.append(body)
        self.prompts.append(prompt)
        text = self.texts[len(self.prompts) - 1]
        call = self.calls_of[len(self.prompts) - 1] if self.calls_of else None
        ids = [*self.renderer.by_characters(text), *self.renderer.encode(self.renderer.end_of_turn)]
        entries: list[dict[str, Any]] = [
            {"token": "t", "logprob": -0.5, "bytes": None, "top_logprobs": []} for _ in ids
        ]
        content = None if call else text.rpartition("</think>\n\n")[2]
        message: dict[str, Any] = {"role": "assistant", "content": content, "tool_calls": [call] if call else []}
        if "</think>" in text:
            message["reasoning"] = text.partition("<think>\n")[2].partition("\n</think>")[0]
        head = {"id": f"chatcmpl-{next(self._ids)}", "created": 1, "model": "stand-in", "prompt_token_ids": prompt}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
        choice = {"index": 0, "logprobs": {"content": entries}, "finish_reason": "stop", "token_ids": ids}
        if body.get("stream"):
            document = {**head, "object": "chat.completion.chunk", "choices": [{**choice, "delta": message}]}
            events = [_event(document)]
            if (body.get("stream_options") or {}).get("include_usage"):
                events.append(_event({**head, "choices": [], "usage": usage}))
            return StreamingResponse(iter([*events, "data: [DONE]\n\n"]), media_type="text/event-stream")
        document = {**head, "object": "chat.completion", "choices": [{**choice, "message": message}], "usage": usage}
        return JSONResponse(document)

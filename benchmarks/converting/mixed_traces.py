"""The production mix as Agent Lightning's tracer records it: the same calls, tools and rewards, as plain values."""

import json
from collections.abc import Iterator
from typing import Final

from converting.carried_traces import Row, Value
from converting.mixed_attributes import MODEL, VERSION, indexed
from converting.mixed_episodes import Episode, ModelCall

_START_S: Final = 1_760_000_000.0


def rows(episode: Episode) -> Iterator[Row]:
    """The spans of one episode, by start; those of a bare loop have no parent."""
    now = base = _START_S + 2 * episode.number
    root = None if episode.is_bare else 0
    number = 0
    if not episode.is_bare:
        end = base + 2 * episode.spans
        yield Row(0, None, "agent.run", base, end, {"agent.name": episode.agent.name})
    for call in episode.calls:
        number, now = number + 1, now + 2
        yield Row(number, root, "openai.chat.completion", now - 2, now - 1, _call(episode, call))
        for use in () if episode.is_bare else call.tools:
            number, now = number + 1, now + 1
            tool: dict[str, Value] = {
                "gen_ai.tool.name": use.name,
                "gen_ai.tool.call.id": use.id,
                "tool.arguments": json.dumps(use.arguments),
                "tool.result": use.result,
            }
            yield Row(number, root, f"tool.{use.name}", now - 1, now - 0.5, tool)
    if episode.reward is not None:
        reward: dict[str, Value] = {
            "agentlightning.reward.0.name": "primary",
            "agentlightning.reward.0.value": episode.reward,
        }
        yield Row(number + 1, root, "agentlightning.annotation", now, now + 0.01, reward)


def _call(episode: Episode, call: ModelCall) -> dict[str, Value]:
    found: dict[str, Value] = {
        "gen_ai.system": "OpenAI",
        "gen_ai.request.type": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.temperature": 0.7,
        **indexed("gen_ai.prompt", call.seen),
    }
    for place, tool in enumerate(episode.agent.tools):
        found[f"gen_ai.request.functions.{place}.name"] = tool.name
        found[f"gen_ai.request.functions.{place}.description"] = tool.description
        found[f"gen_ai.request.functions.{place}.parameters"] = json.dumps(tool.schema)
    if call.said is None:
        return found
    found |= {
        **indexed("gen_ai.completion", [call.said]),
        "gen_ai.completion.0.finish_reason": "tool_calls" if call.said.calls else "stop",
        "gen_ai.response.id": call.response_id,
        "gen_ai.response.model": VERSION,
    }
    if episode.is_captured:
        found["prompt_token_ids"] = tuple(token for message in call.seen for token in message.tokens())
        found["response_token_ids"] = call.said.tokens()
    return found

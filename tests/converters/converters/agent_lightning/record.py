"""Ask Agent Lightning's adapters what they make of the trees; runs in the peers' environment.

    python benchmarks/peers.py
    cd tests/converters/converters && ../../../.venv-peers/bin/python -m agent_lightning.record

Writes ``theirs.json``: name of the tree → `facts`.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from agentlightning import adapter as adapters  # type: ignore[import-not-found]
from agentlightning.types import Span  # type: ignore[import-not-found]

from . import TREES
from .tree import MESSAGES, PROXY, Call, Tree, facts


def spans(tree: Tree) -> list[Any]:
    """A tree as Agent Lightning's spans."""
    return [
        Span.from_attributes(
            rollout_id="rollout",
            attempt_id="attempt",
            sequence_id=span.sequence or place,
            trace_id="trace",
            span_id=span.span_id,
            parent_id=span.parent,
            name=span.name,
            attributes=dict(span.attributes),
            start_time=span.start_s,
            end_time=span.end_s,
        )
        for place, span in enumerate(tree.spans)
    ]


def adapted(tree: Tree) -> list[Call]:
    """What the tree's adapter makes of it."""
    if tree.adapter == MESSAGES:
        conversations = json.loads(json.dumps(adapters.TraceToMessages().adapt(spans(tree))))
        return [of_conversation(found["messages"][-1]) for found in conversations]
    make = getattr(adapters, tree.adapter)
    adapter = make() if tree.adapter == PROXY else make(**tree.options)
    return [
        Call(
            response_id=triplet.metadata["response_id"],
            agent=triplet.metadata.get("agent_name"),
            prompt=triplet.prompt["token_ids"],
            response=triplet.response["token_ids"],
            reward=triplet.reward,
        )
        for triplet in adapter.adapt(spans(tree))
    ]


def of_conversation(answer: dict[str, Any]) -> Call:
    """The call that a conversation ends with."""
    asked = answer.get("tool_calls") or ()
    calls = [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in asked]
    return Call(tool_calls=calls, answer=answer.get("content") or "")


if __name__ == "__main__":
    found = {tree.name: facts(tree, adapted(tree)) for tree in TREES}
    lines = [f" {json.dumps(name)}: {json.dumps(values)}" for name, values in found.items()]
    Path(__file__).with_name("theirs.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")

"""A judge: any callable from a prompt to an answer with one JSON object. A real one asks a model."""

import json


def first_step(_prompt: str) -> str:
    """Blame the first step, with little confidence."""
    return json.dumps(
        {"step": 0, "error_class": "wrong_plan", "owner": "policy", "confidence": 0.3, "reason": "It began so."}
    )

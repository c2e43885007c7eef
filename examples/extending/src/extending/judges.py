"""A judge: from a prompt to an answer that holds one JSON object. A real one asks a model."""

import json


def first_step(_prompt: str, confidence: float = 0.3) -> str:
    """Blame the first step, with little confidence."""
    return json.dumps(
        {"step": 0, "error_class": "wrong_plan", "owner": "policy", "confidence": confidence, "reason": "It began so."}
    )

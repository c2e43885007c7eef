# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""The critic of ppo: verl's worker and value engine, on a CPU too.

The value model is the base with a head of one output for each token in place of its vocabulary's. The head starts with
zeros: every value is 0 before the first update, so a job does not depend on random weights. verl loads value models
with FlashAttention only, which is not installed; here they have the attention of the recipe. Importing this module
makes both changes; Ray's workers import it because they unpickle :class:`CriticWorker`.
"""

from typing import Any

import torch
import verl.utils.model as verl_model
from transformers import AutoModelForTokenClassification
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead
from verl.workers.engine_workers import TrainingWorker

_ENGINE: Any = FSDPEngineWithValueHead
_LOADER: Any = AutoModelForTokenClassification

EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")(_ENGINE)


def load_value_model(local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool) -> Any:  # noqa: FBT001 - verl's signature
    """Load the model in ``local_path`` with a value head of zeros; replaces ``verl.utils.model.load_valuehead_model``.

    Raises:
        ValueError: The architecture has no token classification model in transformers.
    """
    model = _LOADER.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
    )
    for parameter in (getattr(model, "score", None) or model.classifier).parameters():
        torch.nn.init.zeros_(parameter)
    return model


verl_model.load_valuehead_model = load_value_model


class CriticWorker(TrainingWorker):
    """verl's worker; its module registers the engine and the loader where it is unpickled."""

# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""The critic of ppo: verl's worker with the engine of the policy (:mod:`.engine.tree_engine`).

The value model is the base with a head of one output for each token in place of its vocabulary's. The head starts with
zeros: every value is 0 before the first update, so a job does not depend on random weights. verl loads value models
with FlashAttention only, which is not installed; here they have the attention of the engine. Importing this module
makes the change and registers the engine; Ray's workers import it because they unpickle :class:`CriticWorker`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import verl.utils.model as verl_model
from omegaconf import OmegaConf
from transformers import AutoModelForTokenClassification
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import value_loss

from .engine import tree_engine as _registered  # noqa: F401 - a worker chooses its engine before it reads external_lib

_LOADER: Any = AutoModelForTokenClassification


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


def weighted_value_loss(config: Any, coefficient: float) -> Callable[..., Any]:
    """Return verl's value loss times ``coefficient``; the metric ``critic/vf_loss`` stays the loss itself.

    Args:
        config: verl's ``critic`` configuration.
        coefficient: Weight of the loss.
    """
    # the loss reads nothing of the model, whose configuration would load a tokenizer
    merged: Any = OmegaConf.merge(config, {"model": None})
    critic = omega_conf_to_dataclass(merged)
    return partial(_weighted_value_loss, coefficient, critic)


def _weighted_value_loss(coefficient: float, config: Any, *arguments: Any, **settings: Any) -> tuple[torch.Tensor, Any]:
    loss, metrics = value_loss(config, *arguments, **settings)
    return coefficient * loss, metrics


class CriticWorker(TrainingWorker):
    """verl's worker; its module registers engine and loader where it is unpickled."""

"""Settings of a training job that contradict one another.

Invariant: each message begins with the name of a setting and says what it needs.
"""

from collections.abc import Iterator
from typing import Any

from spanloop.training.recipes.base import LearnsFrom
from spanloop.training.recipes.registry import recipe_names

from .choices import Backbone, Device
from .defaults import LORA_ALPHA, MAX_ADAPTER_RANK
from .flat_settings import unused_message
from .job_settings import JobSettings
from .strategy_names import Coreset
from .verl_overrides import refused_overrides


def contradictions(spec: JobSettings) -> Iterator[str]:
    """Return what is wrong with the settings of ``spec``, each of which is valid alone."""
    yield from _unused(spec)
    yield from _of_data(spec)
    yield from _of_training(spec)
    yield from refused_overrides(spec.verl)


def _unused(spec: JobSettings) -> Iterator[str]:
    for name in sorted(spec.recipe.unused_settings):
        if getattr(spec, name) != _default(spec, name):
            yield unused_message(
                name, [other for other in recipe_names() if other != spec.kind], spec.kind, spec.preset
            )


def _default(spec: JobSettings, name: str) -> Any:
    return type(spec).model_fields[name].get_default(call_default_factory=True, validated_data={"recipe": spec.recipe})


def _of_data(spec: JobSettings) -> Iterator[str]:
    has_size = spec.coreset_share is not None or spec.coreset_size is not None
    if spec.coreset is Coreset.NONE and has_size:
        yield "coreset_share, coreset_size: settings of a coreset, which is none"
    if spec.coreset is not Coreset.NONE and not has_size:
        yield f"coreset: {spec.coreset} needs coreset_share or coreset_size"
    lowest, highest = spec.min_pass_rate, spec.max_pass_rate
    if lowest is not None and highest is not None and lowest > highest:
        yield f"min_pass_rate: {lowest:g} is above the max_pass_rate of {highest:g}"
    if spec.since is not None and spec.until is not None and spec.since >= spec.until:
        yield f"since: {spec.since} is not before until, {spec.until}"


def _of_training(spec: JobSettings) -> Iterator[str]:
    if not spec.lora_rank and spec.lora_alpha != LORA_ALPHA:
        yield "lora_alpha: a setting of LoRA, which needs a lora_rank above 0"
    if not spec.lora_rank and spec.lora_dropout:
        yield "lora_dropout: a setting of LoRA, which needs a lora_rank above 0"
    if not spec.lora_rank and spec.target_modules:
        yield "target_modules: a setting of LoRA, which needs a lora_rank above 0"
    if not spec.lora_merge and not 0 < spec.lora_rank <= MAX_ADAPTER_RANK:
        yield f"lora_merge: an adapter needs a lora_rank from 1 to {MAX_ADAPTER_RANK}, which vLLM serves"
    if spec.device is Device.CPU and spec.offload:
        yield "offload: a CPU has weights and optimiser states in the host's memory anyway"
    if spec.deploy and spec.deploy_always:
        yield "deploy_always: deploy asks the promotion rule; set one of both"
    if spec.backbone is Backbone.DEBUG and spec.ray_address:
        yield "ray_address: the debug backbone uses no Ray cluster"
    if spec.backbone is Backbone.DEBUG and spec.ranks > 1:
        yield "ranks: the debug backbone is one process"
    if spec.recipe.learns_from is not LearnsFrom.ROWS and spec.batch_groups % spec.ranks:
        yield f"batch_groups: a {spec.kind} batch of {spec.batch_groups} rows does not divide by {spec.ranks} ranks"

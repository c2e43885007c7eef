"""Settings of a training job that contradict one another.

Invariant: each message begins with the name of a setting and says what it needs.
"""

from collections.abc import Iterator
from typing import Any, Final

from spanloop.training.jobs.kinds import JobKind

from .choices import Backbone, Credit, Device, DpoLoss
from .defaults import LORA_ALPHA, MAX_ADAPTER_RANK
from .job_settings import JobSettings
from .presets import preset_values
from .setting import setting_of
from .strategy_names import Coreset
from .verl_overrides import refused_overrides

_CLIP_RANGES: Final = ("clip_ratio_low", "clip_ratio_high", "cliprange_value")


def contradictions(spec: JobSettings) -> Iterator[str]:
    """Return what is wrong with the settings of ``spec``, each of which is valid alone."""
    yield from _unused(spec)
    yield from _of_data(spec)
    yield from _of_credit(spec)
    yield from _of_losses(spec)
    yield from _of_training(spec)
    yield from refused_overrides(spec.verl)


def _unused(spec: JobSettings) -> Iterator[str]:
    for name, field in type(spec).model_fields.items():
        kinds = setting_of(field.metadata).kinds
        if spec.kind not in kinds and getattr(spec, name) != _default(spec, name):
            source = f"the preset {spec.preset} sets it, but it is " if name in preset_values(spec.preset) else ""
            yield f"{name}: {source}a {', '.join(sorted(kinds))} setting that {spec.kind} does not use"


def _default(spec: JobSettings, name: str) -> Any:
    return type(spec).model_fields[name].get_default(call_default_factory=True, validated_data={"kind": spec.kind})


def _of_data(spec: JobSettings) -> Iterator[str]:
    has_size = spec.coreset_share is not None or spec.coreset_size is not None
    if spec.coreset is Coreset.NONE and has_size:
        yield "coreset_share, coreset_size: settings of a coreset, which is none"
    if spec.coreset is not Coreset.NONE and not has_size:
        yield f"coreset: {spec.coreset} needs coreset_share or coreset_size"
    for name in ("pass_rate", "reward"):
        lowest, highest = getattr(spec, f"min_{name}"), getattr(spec, f"max_{name}")
        if lowest is not None and highest is not None and lowest > highest:
            yield f"min_{name}: {lowest:g} is above the max_{name} of {highest:g}"
    if spec.since is not None and spec.until is not None and spec.since >= spec.until:
        yield f"since: {spec.since} is not before until, {spec.until}"


def _of_credit(spec: JobSettings) -> Iterator[str]:
    if spec.kind is JobKind.PPO and spec.credit is Credit.ATTRIBUTED:
        yield "credit: attributed weighs stored advantages, which ppo does not have"
    if spec.kind is JobKind.PPO and spec.credit is Credit.PROCESS_GRPO:
        yield "credit: process_grpo normalises scores by those of a group, which ppo does not compare; take process"
    if spec.gamma != 1 and spec.credit not in {Credit.PROCESS, Credit.ATTRIBUTED}:
        yield f"gamma: a setting of the credits process and attributed; {spec.credit} discounts nothing"


def _of_losses(spec: JobSettings) -> Iterator[str]:
    if spec.dpo_label_smoothing and spec.dpo_loss is not DpoLoss.SIGMOID:
        yield f"dpo_label_smoothing: a setting of the loss sigmoid; {spec.dpo_loss} has none"
    if spec.epochs == 1:
        for name in _CLIP_RANGES:
            if getattr(spec, name) != _default(spec, name):
                yield f"{name}: one pass over a batch clips nothing; it needs epochs above 1"


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
    if not spec.kind.is_policy_gradient and spec.batch_groups % spec.ranks:
        yield f"batch_groups: a {spec.kind} batch of {spec.batch_groups} rows does not divide by {spec.ranks} ranks"

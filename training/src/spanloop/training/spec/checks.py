"""Settings of a training job that contradict one another.

Invariant: each message begins with the name of a setting and says what it needs.
"""

from collections.abc import Iterator

from spanloop.training.recipes.base import LearnsFrom
from spanloop.training.recipes.registry import recipe_names

from .choices import Backbone, Coreset, Device
from .defaults import LORA_ALPHA, MAX_ADAPTER_RANK
from .flat_settings import flat_settings, job_fields, unused_message
from .job_settings import JobSettings
from .verl_overrides import refused_overrides


def contradictions(spec: JobSettings) -> Iterator[str]:
    """Return what is wrong with the settings of ``spec``, each of which is valid alone."""
    yield from _unused(spec)
    yield from _of_data(spec)
    yield from _of_training(spec)
    yield from _of_ranks(spec)
    yield from refused_overrides(spec.run.verl)


def _unused(spec: JobSettings) -> Iterator[str]:
    values = flat_settings(spec)
    for name in sorted(spec.recipe.unused_settings):
        if values[name] != job_fields()[name].get_default():
            users = [other for other in recipe_names() if other != spec.kind]
            yield unused_message(name, users, spec.kind, spec.run.preset)


def _of_data(spec: JobSettings) -> Iterator[str]:
    episodes = spec.episodes
    has_size = episodes.coreset_share is not None or episodes.coreset_size is not None
    if episodes.coreset is Coreset.NONE and has_size:
        yield "coreset_share, coreset_size: settings of a coreset, which is none"
    if episodes.coreset is not Coreset.NONE and not has_size:
        yield f"coreset: {episodes.coreset} needs coreset_share or coreset_size"
    lowest, highest = episodes.min_pass_rate, episodes.max_pass_rate
    if lowest is not None and highest is not None and lowest > highest:
        yield f"min_pass_rate: {lowest:g} is above the max_pass_rate of {highest:g}"
    if episodes.since is not None and episodes.until is not None and episodes.since >= episodes.until:
        yield f"since: {episodes.since} is not before until, {episodes.until}"


def _of_training(spec: JobSettings) -> Iterator[str]:
    optimiser, run = spec.optimiser, spec.run
    if not optimiser.lora_rank and optimiser.lora_alpha != LORA_ALPHA:
        yield "lora_alpha: a setting of LoRA, which needs a lora_rank above 0"
    if not optimiser.lora_rank and optimiser.lora_dropout:
        yield "lora_dropout: a setting of LoRA, which needs a lora_rank above 0"
    if not optimiser.lora_rank and optimiser.target_modules:
        yield "target_modules: a setting of LoRA, which needs a lora_rank above 0"
    if not optimiser.lora_merge and not 0 < optimiser.lora_rank <= MAX_ADAPTER_RANK:
        yield f"lora_merge: an adapter needs a lora_rank from 1 to {MAX_ADAPTER_RANK}, which vLLM serves"
    if run.device is Device.CPU and run.offload:
        yield "offload: a CPU has weights and optimiser states in the host's memory anyway"
    if run.deploy and run.deploy_always:
        yield "deploy_always: deploy asks the promotion rule; set one of both"


def _of_ranks(spec: JobSettings) -> Iterator[str]:
    optimiser, run = spec.optimiser, spec.run
    if run.backbone is Backbone.DEBUG and run.ray_address:
        yield "ray_address: the debug backbone uses no Ray cluster"
    if run.backbone is Backbone.DEBUG and run.ranks > 1:
        yield f"{'gpus_per_node' if run.gpus_per_node > 1 else 'nodes'}: the debug backbone is one process"
    if run.nodes > 1 and not run.ray_address:
        yield "nodes: a job on several nodes needs ray_address, the Ray cluster that has them"
    if spec.recipe.learns_from is not LearnsFrom.ROWS and optimiser.batch_groups % run.ranks:
        yield f"batch_groups: a {spec.kind} batch of {optimiser.batch_groups} rows does not divide by {run.ranks} ranks"

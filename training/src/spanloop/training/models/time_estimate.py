"""Estimate the seconds of a job's step on a GPU from the shape of its model and the tokens of the step.

A step takes ``operations / (efficiency * peak) + overhead``. The operations of forward and backward are 6 for each
parameter of the layers and computed token, 6 for each parameter of the output head and trained token, and 12 for each
layer, hidden unit and pair of tokens of which one attends to the other (Chowdhery et al. 2022, "PaLM", appendix B). The
recomputation of activations is part of the efficiency. LoRA has no gradients of weights: two thirds. A forward pass
alone is a third: with several epochs the start of the step, the base of a KL term, the log-probabilities of dpo, and
the values of ppo, whose critic also trains.

:data:`CARDS` is the one table of coefficients. Those of a card that was not measured are those of the measured one,
with the peak of its data sheet.
"""

import subprocess
from typing import Final, NamedTuple

from spanloop.training.recipes.base import LearnsFrom
from spanloop.training.recipes.policy_gradient import PolicyGradient

from .memory_estimate import JobSettings
from .model_shape import ModelShape


class Card(NamedTuple):
    """A GPU."""

    name: str
    """Part of the name that nvidia-smi gives it."""
    memory_bytes: int
    peak_flops: float
    """Dense bfloat16 operations a second, by the vendor's data sheet; 0 for a card outside :data:`CARDS`."""
    efficiency: float
    """Share of the peak that forward and backward of packed trees reach."""
    overhead_s: float
    """Seconds of a step outside forward and backward: optimiser, packing, the queue of rows."""
    measured: str
    """The measurement on this card; empty without one."""


_EFFICIENCY, _OVERHEAD_S = 0.25, 0.2
"""An H100 took 2.35 s for 5.7e14 operations, with an earlier engine that recomputed all activations."""
_KEPT_EFFICIENCY: Final = 0.36
"""An H200, which kept all activations, took 1.39 s for an update of 5.0e14 operations and 1.58 s for its step."""
CARDS: Final = (
    Card("H200", 141_000_000_000, 989e12, _KEPT_EFFICIENCY, _OVERHEAD_S, "steps of 1.5B"),
    Card("H100", 80_000_000_000, 989e12, _EFFICIENCY, _OVERHEAD_S, "forward and backward of 1.5B"),
    Card("A100", 80_000_000_000, 312e12, _EFFICIENCY, _OVERHEAD_S, ""),
    Card("4090", 24_000_000_000, 165e12, _EFFICIENCY, _OVERHEAD_S, ""),
    Card("L4", 24_000_000_000, 121e12, _EFFICIENCY, _OVERHEAD_S, ""),
)
LARGE_CARD: Final = CARDS[1]
"""One with 80 GB."""
SMALL_CARD: Final = CARDS[3]
"""One with 24 GB."""
_FORWARD: Final = 1 / 3
"""Of the operations of forward and backward."""


class StepWork(NamedTuple):
    """The rows of one step."""

    computed_tokens: float
    """Tokens of all rows, the prompt of each group once."""
    row_tokens: float
    """Tokens of a row, on average."""
    trained_tokens: float
    """Tokens in the loss."""


def passes_of(settings: JobSettings) -> float:
    """Return the forward and backward passes over a step's rows that a job takes; a forward pass alone is a third."""
    recipe = settings.recipe
    epochs = recipe.epochs if isinstance(recipe, PolicyGradient) else 1
    update = 2 / 3 if settings.optimiser.lora_rank else 1.0
    # a critic has no adapter
    trained = epochs * (update + (1.0 if recipe.needs_critic else 0.0))
    is_compared = epochs > 1 or recipe.learns_from is LearnsFrom.PAIRS
    return trained + _FORWARD * (is_compared + recipe.needs_reference + recipe.needs_critic)


def operations(shape: ModelShape, work: StepWork) -> float:
    """Return the operations of one forward and backward pass over a step's rows."""
    pairs = work.computed_tokens * work.row_tokens / 2
    matrices = shape.layers * shape.layer_parameters * work.computed_tokens
    head = shape.vocabulary * shape.hidden * work.trained_tokens
    return 6 * (matrices + head) + 12 * shape.layers * shape.hidden * pairs


def step_seconds(shape: ModelShape, work: StepWork, settings: JobSettings, card: Card) -> float:
    """Return the seconds of a step; the ranks of a job share its rows."""
    speed = card.efficiency * card.peak_flops * settings.run.ranks
    return passes_of(settings) * operations(shape, work) / speed + card.overhead_s


def find_card(name: str) -> Card | None:
    """Return the card whose name is a part of ``name``."""
    return next((card for card in CARDS if card.name in name), None)


def local_card() -> Card | None:
    """Return this machine's first GPU with its own memory; None without one."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits", "--id=0"]
    try:
        name, _, mebibytes = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rpartition(",")
        memory_bytes = int(mebibytes) * 2**20
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
    card = find_card(name) or Card(name.strip(), 0, 0.0, 0.0, 0.0, "")
    return card._replace(memory_bytes=memory_bytes)

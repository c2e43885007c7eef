"""Presets: named defaults of the settings that depend on the hardware.

Invariant: a preset changes defaults only; a setting that is given wins. No preset sets what decides the result of a
training (learning rate, batch, LoRA), because the best value of these does not depend on the machine.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple


class Preset(StrEnum):
    """The hardware that a job's defaults are for."""

    ANY = "any"
    """Sets nothing: a GPU if there is one."""
    CPU = "cpu"
    """A machine without a GPU, or whose GPU is left alone."""
    GPU24 = "gpu24"
    """One GPU of 24 GB that serving and training share: all weights of 0.5B parameters, more with LoRA or offload."""
    GPU = "gpu"
    """One GPU of 80 GB that serving and training share: all weights of 3B parameters, 7B with LoRA or offload."""
    GPUS8 = "gpus8"
    """A node of eight GPUs."""

    @property
    def display_name(self) -> str:
        """The hardware in words."""
        return {
            Preset.ANY: "any",
            Preset.CPU: "CPU",
            Preset.GPU24: "one GPU of 24 GB",
            Preset.GPU: "one GPU",
            Preset.GPUS8: "eight GPUs",
        }[self]


class PresetValue(NamedTuple):
    """The default that a preset gives a setting."""

    value: Any
    reason: str
    """Why this value; one sentence."""


_GPU: Final[Mapping[str, PresetValue]] = {
    "device": PresetValue("cuda", "A job fails at once where no GPU is found, instead of training on the CPU."),
    "pause_serving": PresetValue(
        True,
        "vLLM reserves 0.92 of a GPU by default, so it sleeps while a job trains; not measured on a GPU here.",
    ),
}
PRESETS: Final[Mapping[Preset, Mapping[str, PresetValue]]] = {
    Preset.ANY: {},
    Preset.CPU: {
        "device": PresetValue("cpu", "A GPU that is there is left to others."),
    },
    Preset.GPU24: _GPU,
    Preset.GPU: _GPU,
    Preset.GPUS8: {
        **_GPU,
        "gpus_per_node": PresetValue(
            8, "One rank a GPU; the result is that of one rank (measured with two CPU ranks, not on GPUs)."
        ),
    },
}


def preset_values(preset: str) -> dict[str, Any]:
    """Return the defaults that ``preset`` gives, by setting; an unknown preset gives none."""
    return {name: entry.value for name, entry in PRESETS[Preset(preset)].items()} if preset in set(Preset) else {}


def with_preset(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` with the values of their ``preset`` where they have none; an unknown preset adds none."""
    return preset_values(str(settings.get("preset", Preset.ANY))) | dict(settings)

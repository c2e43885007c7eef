"""Detect CPU instructions that decide the number format of serving and training."""

import re
from pathlib import Path
from typing import Final

_BFLOAT16_FLAGS: Final = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""The kernel's names of the instructions: x86 in two forms, ARM."""


def computes_bfloat16(cpu_info: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this machine's CPU multiplies bfloat16 in hardware: without that it is slower than float32."""
    try:
        flag_lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", cpu_info.read_text(), re.MULTILINE)
    except OSError:
        return False
    return any(not _BFLOAT16_FLAGS.isdisjoint(line.split()) for line in flag_lines)

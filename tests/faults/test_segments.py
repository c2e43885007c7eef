"""Truncate a segment at every byte, and flip every bit: complete records are delivered, the rest is quarantined.

In the ledger a damaged record has an unknown outcome: the spool counts it and keeps its remaining bytes.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

from ..collector.spool.test_spool_damage import BODIES, SCRATCH, drain, fill, frame_ends, the_segment
from .ledger import Balance, total

ENDS: Final = frame_ends()
SIZE_BYTES: Final = ENDS[-1]


@contextmanager
def damages() -> Generator[Callable[[Callable[[bytes], bytes]], tuple[list[bytes], int]]]:
    """Yield a function that damages a copy of the spool, drains it, and returns (bodies, quarantined)."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        intact, copied = Path(folder, "intact"), Path(folder, "copy")
        fill(intact, BODIES)

        def damage(change: Callable[[bytes], bytes]) -> tuple[list[bytes], int]:
            shutil.copytree(intact, copied)
            segment = the_segment(copied)
            segment.write_bytes(change(segment.read_bytes()))
            drained = drain(copied)
            shutil.rmtree(copied)
            return drained

        yield damage


def cut(content: bytes, *, size: int) -> bytes:
    return content[:size]


def flip(content: bytes, *, offset: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def balance_of_copy(complete: Sequence[bytes], drained: Sequence[bytes]) -> Balance:
    """Return the balance of one damaged copy."""
    return Balance(
        attempted=len(BODIES),
        acknowledged=len(complete),
        refused=0,
        unknown=len(BODIES) - len(complete),
        stored=len(drained),
        resent=0,
        lost=len(set(complete) - set(drained)),
        unexpected=len(set(drained) - set(BODIES)),
        duplicated=len(drained) - len(set(drained)),
    )


def test_truncation_at_every_byte_keeps_every_complete_record(print_at_end: Callable[[str], None]) -> None:
    balances: list[Balance] = []
    with damages() as damage:
        for size in range(SIZE_BYTES):
            bodies, quarantined = damage(partial(cut, size=size))
            complete = list(BODIES[: sum(end <= size for end in ENDS[1:])])
            assert (bodies, quarantined) == (complete, 0 if size in ENDS else 1), f"truncated at byte {size}"
            balances.append(balance_of_copy(complete, bodies))
    print_at_end(f"ledger segment-truncated-at-each-of-{SIZE_BYTES}-bytes: {total(balances)}")


def test_every_flipped_bit_loses_at_most_one_record(print_at_end: Callable[[str], None]) -> None:
    balances: list[Balance] = []
    with damages() as damage:
        for offset, bit in product(range(SIZE_BYTES), range(8)):
            bodies, quarantined = damage(partial(flip, offset=offset, bit=bit))
            hit = sum(end <= offset for end in ENDS[1:])
            complete = [body for number, body in enumerate(BODIES) if number != hit]
            assert (bodies, quarantined) == (complete, 1), f"flipped bit {bit} of byte {offset}"
            balances.append(balance_of_copy(complete, bodies))
    print_at_end(f"ledger segment-flipped-at-{len(balances)}-bits-of-{SIZE_BYTES}-bytes: {total(balances)}")

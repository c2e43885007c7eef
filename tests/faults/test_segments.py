"""A segment that is cut at every byte, or flipped at every bit: what is whole is delivered, all else is set aside.

In the ledger a record that the damage hit is of unknown outcome: the spool counts it and keeps what is left of it.
"""

import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

from ..spool.test_spool_damage import BODIES, SCRATCH, drain, fill, frame_ends, the_segment
from .ledger import Balance, total

ENDS: Final = frame_ends()
SIZE_BYTES: Final = ENDS[-1]


@contextmanager
def damages() -> Generator[Callable[[Callable[[bytes], bytes]], tuple[list[bytes], int]]]:
    """Damages one copy after the other of the same spool, and drains it: (bodies, quarantined)."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        intact, copied = Path(folder, "intact"), Path(folder, "copy")
        fill(intact, BODIES)

        def damage(change: Callable[[bytes], bytes]) -> tuple[list[bytes], int]:
            shutil.copytree(intact, copied)
            segment = the_segment(copied)
            segment.write_bytes(change(segment.read_bytes()))
            found = drain(copied)
            shutil.rmtree(copied)
            return found

        yield damage


def cut(content: bytes, *, size: int) -> bytes:
    return content[:size]


def flip(content: bytes, *, offset: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def account(whole: Sequence[bytes], found: Sequence[bytes]) -> Balance:
    """Of one damaged copy."""
    return Balance(
        attempted=len(BODIES),
        acknowledged=len(whole),
        refused=0,
        unknown=len(BODIES) - len(whole),
        stored=len(found),
        resent=0,
        lost=len(set(whole) - set(found)),
        unexpected=len(set(found) - set(BODIES)),
        duplicated=len(found) - len(set(found)),
    )


def test_truncation_at_every_byte_keeps_every_complete_record(say: Callable[[str], None]) -> None:
    balances: list[Balance] = []
    with damages() as damage:
        for size in range(SIZE_BYTES):
            bodies, quarantined = damage(partial(cut, size=size))
            whole = list(BODIES[: sum(end <= size for end in ENDS[1:])])
            assert (bodies, quarantined) == (whole, 0 if size in ENDS else 1), f"truncated at byte {size}"
            balances.append(account(whole, bodies))
    say(f"ledger segment-truncated-at-each-of-{SIZE_BYTES}-bytes: {total(balances)}")


def test_every_flipped_bit_loses_at_most_one_record(say: Callable[[str], None]) -> None:
    balances: list[Balance] = []
    with damages() as damage:
        for offset, bit in product(range(SIZE_BYTES), range(8)):
            bodies, quarantined = damage(partial(flip, offset=offset, bit=bit))
            hit = sum(end <= offset for end in ENDS[1:])
            whole = [body for number, body in enumerate(BODIES) if number != hit]
            assert (bodies, quarantined) == (whole, 1), f"flipped bit {bit} of byte {offset}"
            balances.append(account(whole, bodies))
    say(f"ledger segment-flipped-at-{len(balances)}-bits-of-{SIZE_BYTES}-bytes: {total(balances)}")

"""Every recording of this repository gives what it gave: a change of the converters shows as a diff of ``golden/``.

The files have the columns that a dialect decides; ``test_derived_columns`` checks the others.

After a change that is meant, raise ``CONVERTER_VERSION``, write the files anew and read the diff:

    SPANLOOP_WRITE_GOLDEN=1 .venv/bin/pytest tests/converters/converters/test_golden.py
"""

import os
from pathlib import Path

import pytest

from . import converters_recordings as recordings
from .golden import as_golden
from .test_recordings import convert_recording

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in recordings.OWN.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_gives_what_it_gave(name: str) -> None:
    _, converted = convert_recording(name)
    got = as_golden(converted)
    path = GOLDEN / f"{name}.json"
    if os.environ.get("SPANLOOP_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(got)
    assert got == path.read_text(), "see the docstring of this module for a change that is meant"


def test_no_golden_file_is_left_of_a_recording_that_is_gone() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == NAMES

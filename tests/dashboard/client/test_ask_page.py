"""``docs/how-to/ask.md``: its Python runs as written, and prints what the page shows."""

import contextlib
import io
import re
from pathlib import Path

import polars as pl

from ..dashboard.dashboard_seeding import Seeded

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "ask.md"


def test_the_pages_python_runs_and_prints_what_it_shows(seeded: Seeded) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    printed, names = io.StringIO(), dict[str, object]()
    with contextlib.redirect_stdout(printed), pl.Config(tbl_width_chars=120):
        for block in blocks:
            exec(block, names)
    assert len(blocks) == 2
    assert printed.getvalue() == shown
    assert isinstance(names["failed"], pl.DataFrame)
    assert names["failed"].height == min(20, seeded.episodes - seeded.successes)

"""Text from outside inside Markdown."""

import re

from hypothesis import given
from hypothesis import strategies as st

from spanloop.dashboard.components.markup import escape_md


def test_stored_markdown_is_escaped() -> None:
    assert escape_md("![x](http://evil) **b** $x$") == r"!\[x\](http://evil) \*\*b\*\* \$x\$"


@given(st.text())
def test_nothing_is_lost(text: str) -> None:
    assert re.sub(r"\\(.)", r"\1", escape_md(text), flags=re.DOTALL) == text

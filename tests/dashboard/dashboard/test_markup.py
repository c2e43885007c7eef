"""Text from outside inside Markdown; ``test_markup_in_a_browser`` has what Streamlit draws."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.dashboard.components.markup import escape_md


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("![x](http://evil) **b** $x$", r"!\[x\](http\::small[]//evil) \*\*b\*\* \$x\$"),
        ("swe-bench:lock:17", r"swe-bench\::small[]lock\:17"),
        (":material/delete:", r"\::small[]material/delete:"),
        ("x:red", r"x\:red"),
        ("a <- b >= c -- d", r"a \<:small[]- b \>:small[]= c -:small[]- d"),
        ("www.example.com", "www:small[].example.com"),
        ("a@example.com", "a@:small[]example.com"),
        ("&copy;", r"\&copy;"),
        ("1. one", r"1\. one"),
        ("- item", r"\- item"),
        (" x\ny ", "&#32;x&#10;y&#32;"),
        ("shop-tiny@v1 failed: 3 of 4.", "shop-tiny@v1 failed: 3 of 4."),
    ],
)
def test_stored_markdown_is_escaped(text: str, escaped: str) -> None:
    assert escape_md(text) == escaped


@given(st.text())
def test_nothing_is_lost(text: str) -> None:
    plain = re.sub(r"\\(.)|:small\[\]|(&#\d+;)", lambda match: match[1] or unescape(match[2] or ""), escape_md(text))
    assert plain == text

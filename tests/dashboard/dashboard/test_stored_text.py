"""Stored Markdown loads nothing and links nowhere; stored JSON folds and keeps its digits."""

import json
import re
from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from spanloop.dashboard.components.stored_text import json_block, markdown_block
from spanloop.dashboard.view_models.span_content import is_of_request, nested_json, read_content

ALLOWED = set(
    re.findall(r"\w+", "div p br h4 h5 h6 strong em s code pre ul ol li blockquote hr table thead tbody tr th td")
)
"""What Markdown makes."""


def text_of_html(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def tags(html: str) -> set[str]:
    return set(re.findall(r"<(\w+)", html))


def test_markdown_is_drawn() -> None:
    html = markdown_block(
        "# Title\n\n**bold** _and_ `code`\n\n- one\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx < 1\n```"
    )
    assert {"h4", "strong", "em", "code", "li", "td", "pre"} <= tags(html)
    assert "x &lt; 1" in html


def test_links_images_and_tags_stay_text() -> None:
    hostile = "![i](http://e/x.png) [l](http://e) <http://e> http://e <img src=x onerror=alert(1)>\n\n<b>no</b>\n\n[a]: http://e"
    html = markdown_block(hostile)
    assert tags(html) == {"div", "p"}
    for part in ("![i](http://e/x.png)", "[l](http://e)", "<img src=x onerror=alert(1)>", "<b>no</b>", "[a]: http://e"):
        assert part in text_of_html(html)


@given(st.text(alphabet="<>&\"'()[]!*_`#- \nabchtp:/=", max_size=60))
def test_no_text_makes_a_tag_of_its_own(text: str) -> None:
    assert tags(markdown_block(text)) <= ALLOWED


def test_json_folds_and_keeps_its_digits() -> None:
    html = json_block('{"id": 12345678901234567890, "rate": 1.50, "rate": 2e3, "list": [1, {}], "s": "<b>\\u00e9"}')
    assert html is not None
    shown = text_of_html(html)
    for part in ('"id": 12345678901234567890', '"rate": 1.50', '"rate": 2e3', "5 fields", "2 items", '"<b>é"'):
        assert part in shown
    assert tags(html) <= {"div", "details", "summary", "i"}


def test_long_parts_begin_folded_and_other_texts_are_no_json() -> None:
    html = json_block(json.dumps({"short": [1], "long": list(range(40))}))
    assert html is not None
    assert html.count("<details open>") == 2  # the value, and its short part
    assert html.count("<details>") == 1
    for text in ("3", '"a"', "{broken", "[" * 5_000, "", json.dumps(list(range(5_000)))):
        assert json_block(text) is None


def test_a_request_is_one_value_with_what_is_json_in_it() -> None:
    values = {"gen_ai.request.model": "m", "gen_ai.input.messages": '[{"role": "user"}]', "input.value": "{broken"}
    assert json.loads(nested_json(values)) == values | {"gen_ai.input.messages": [{"role": "user"}]}
    assert all(is_of_request(name) for name in values)
    assert not is_of_request("gen_ai.output.messages")


def test_a_span_has_messages_or_arguments() -> None:
    assert read_content({"gen_ai.input.messages": "[]"}).input_messages == "[]"
    assert read_content({"input.value": "1", "output.value": ""}).values == {"Arguments": "1"}

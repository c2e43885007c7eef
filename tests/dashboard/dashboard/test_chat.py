"""What the conversation folds away, and what a chart makes of a constant."""

import polars as pl
from streamlit.testing.v1 import AppTest

from spanloop.dashboard.components.charts import metric_by_step

SCRIPT = """
import json
from spanloop.dashboard.components.chat import show_conversation
from spanloop.dashboard.view_models.conversation import StepRecord

def text(role, content):
    return {{"role": role, "parts": [{{"type": "text", "content": content}}]}}

examples = [text(role, f"{{role}} {{number}}") for number in range({examples}) for role in ("user", "assistant")]
state = [text("system", "Be brief."), *examples, text("user", "the question")]
show_conversation([StepRecord(0, "agent", json.dumps(state), json.dumps(text("assistant", "the answer")), "[]")], 0)
"""


def conversation(examples: int) -> AppTest:
    return AppTest.from_string(SCRIPT.format(examples=examples)).run()


def test_worked_examples_before_the_question_are_folded() -> None:
    app = conversation(examples=3)
    assert not app.exception
    assert [expander.label for expander in app.expander] == ["System prompt", "6 earlier messages"]


def test_a_short_opening_is_shown_as_it_is() -> None:
    app = conversation(examples=1)
    assert not app.exception
    assert [expander.label for expander in app.expander] == ["System prompt"]


def test_a_constant_is_drawn_as_one() -> None:
    noise = [0.76071435, 0.76071424, 0.76071435]
    for values, has_domain in ((noise, True), ([0.0, 0.0], True), ([0.1, 0.9], False)):
        frame = pl.DataFrame({"job": ["a"] * len(values), "step": range(len(values)), "value": values})
        scale = metric_by_step(frame).spec["encoding"]["y"]["scale"]
        assert ("domain" in scale) == has_domain
        if has_domain:
            assert scale["domain"][0] <= min(values) <= max(values) < scale["domain"][1]

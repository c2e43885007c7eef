"""Inputs written after public bug reports: what the text beside each expects."""

from functools import cache

import pytest

from . import otlp_json
from .public_report_claims import Report, outcomes


def names() -> list[str]:
    return sorted(path.stem for path in otlp_json.PUBLIC_REPORTS.glob("*.json"))


@cache
def report(name: str) -> Report:
    text = (otlp_json.PUBLIC_REPORTS / f"{name}.expected.md").read_text()
    return Report(text, otlp_json.read(otlp_json.PUBLIC_REPORTS / f"{name}.json"))


@pytest.mark.parametrize("name", names() or [pytest.param("", marks=pytest.mark.skip("the reports are absent"))])
def test_a_report_comes_out_as_its_reader_expects(name: str) -> None:
    claims = outcomes(report(name))
    assert claims, report(name).expected
    assert [phrase for phrase, holds in claims.items() if not holds] == []


@pytest.mark.parametrize("name", names() or [pytest.param("", marks=pytest.mark.skip("the reports are absent"))])
def test_each_span_of_a_report_is_a_transition_or_rejected(name: str) -> None:
    converted, spans = report(name).converted, report(name).delivered.spans
    rows = [*converted.transitions.select("trace_id", "span_id").rows()]
    rows += converted.rejected.select("trace_id", "span_id").rows()
    assert sorted(rows) == sorted(spans.select("TraceId", "SpanId").rows())

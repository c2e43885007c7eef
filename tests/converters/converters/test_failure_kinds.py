"""Failures in eight languages, told in text, in a JSON object and raised; and answers that are none."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from spanloop.converters import Converted
from spanloop.converters.errors.error_texts import error_in_text

from .converters_world import OPENING, World, answers, asks, text, trace_id
from .failure_worlds import told, verdicts

KINDS: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "failure_kinds.toml").read_text("utf-8")
)
TOOLS: Final = KINDS["tool"]
REQUESTS: Final = KINDS["request"]


def called(kind: dict[str, Any], contents: Sequence[str], *, is_raised: bool = False) -> list[list[tuple[str, str]]]:
    """(class, owner) of the open failures of an episode for each of ``contents``."""
    world = World()
    arguments = json.loads(kind.get("arguments", '{"query": "weather in Paris"}'))
    name = kind.get("name", "search")
    traces = [trace_id(f"case {number}") for number in range(len(contents))]
    for number, (trace, content) in enumerate(zip(traces, contents, strict=True)):
        opening = [text("system", f"Case {number}."), *OPENING]
        said = asks(f"c{number}", name, arguments)
        world.call(opening, said, trace=trace)
        if is_raised:
            values = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": f"c{number}",
            }
            world.span("tool", values, trace=trace, error=content, exception=(kind["exception"], content))
        world.call([*opening, said, answers(f"c{number}", content)], text("assistant", "21"), trace=trace)
        world.score(0.0, trace_id=trace)
    return verdicts_by_trace(world.convert(), traces)


def verdicts_by_trace(converted: Converted, traces: Sequence[str]) -> list[list[tuple[str, str]]]:
    named = converted.episodes.select("episode_id", pl.col("trace_ids").list.get(0).alias("trace"))
    rows = converted.failures.filter(~pl.col("is_recovered")).join(named, on="episode_id")
    found: dict[str, list[tuple[str, str]]] = {trace: [] for trace in traces}
    for trace, error_class, owner in rows.select("trace", "error_class", "fault_owner").iter_rows():
        found[trace].append((error_class, owner))
    assert converted.episodes.height == len(traces)
    return list(found.values())


@pytest.mark.parametrize("kind", TOOLS.values(), ids=TOOLS)
def test_a_tools_failure_told_in_text(kind: dict[str, Any]) -> None:
    for said, failures in zip(kind["texts"], called(kind, kind["texts"]), strict=True):
        ((error_class, owner),) = failures
        assert (error_class, owner in kind.get("told_owner", [kind["owner"]])) == (kind["class"], True), said


@pytest.mark.parametrize("name", [name for name, kind in TOOLS.items() if kind["exception"]])
def test_a_tools_failure_raised(name: str) -> None:
    kind = TOOLS[name]
    for said, failures in zip(kind["texts"], called(kind, kind["texts"], is_raised=True), strict=True):
        assert failures == [(kind["class"], kind["owner"])], said


@pytest.mark.parametrize("kind", [kind for kind in TOOLS.values() if kind["owner"] != "policy"])
def test_the_policy_is_charged_only_with_its_own(kind: dict[str, Any]) -> None:
    texts = kind["texts"]
    contents = [json.dumps({key: said}, ensure_ascii=False) for said in texts for key in ("message", "error")]
    contents += [json.dumps({"message": said}) for said in texts]
    for content, failures in zip(contents, called(kind, contents), strict=True):
        assert "policy" not in {owner for _, owner in failures}, content


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=REQUESTS)
def test_a_request_raised(kind: dict[str, Any]) -> None:
    world = World()
    traces = [trace_id(f"case {number}") for number in range(len(kind["texts"]))]
    for trace, said in zip(traces, kind["texts"], strict=True):
        opening = [text("system", f"Trace {trace}."), *OPENING]
        world.call(opening, None, trace=trace, error=said, exception=(kind["exception"], said))
    found = verdicts_by_trace(world.convert(), traces)
    assert found == [[(kind["class"], kind["owner"])]] * len(traces)


@pytest.mark.parametrize(
    "answer",
    [
        "0 errors found",
        "The error handling guide explains how to retry.",
        "Chapter 3 is about timeouts and rate limits.",
        "Das Hotel ist bis Mai ausgebucht",
        "La clave es viajar en mayo",
        "Pilot error",
        "The query returned 500 rows",
    ],
)
def test_an_answer_about_errors_is_none(answer: str) -> None:
    assert error_in_text(answer) is None


@pytest.mark.parametrize("last", ["A timeout of 30 seconds is best.", "The request timed out in the film's plot."])
def test_a_wrong_answer_that_mentions_an_outage_stays_wrong(last: str) -> None:
    assert verdicts(told('{"title": "Networks"}', last=last)) == [("wrong_answer", "policy")]


def test_an_apology_after_a_remark_that_no_pattern_knows_charges_nobody() -> None:
    converted = told("Der Buchungsroboter streikt heute", last="Es tut mir leid, das ging nicht.")
    assert verdicts(converted) == [("tool_error", "unknown")]


def test_a_tools_own_data_that_do_not_fit_are_not_the_policys() -> None:
    content = "Output validation error: 'price' is a required property"
    assert verdicts(told(content)) == [("tool_error", "unknown")]

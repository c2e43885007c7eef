"""What ``spanloop.toml`` changes about the service's conversion."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from spanloop.converters import Options
from spanloop.converters.attribution import RULES, EndingRule, Finding, Rule, ToolCallContext, ToolCallRule
from spanloop.converters.enums import FaultOwner
from spanloop.converters.steps import Episode
from spanloop.foundation.errors import ConfigurationError
from spanloop.pipeline.conversion_settings import MOST_FAILURES, PAUSE_S, conversion_settings, guarded_judge

from ..converters.converters_world import OPENING, World, answers, asks, text, trace_id

HERE = __name__
NO_RULE = 7


def blames_the_plan(_prompt: str) -> str:
    return json.dumps({"step": 0, "error_class": "wrong_plan", "owner": "policy", "confidence": 0.8, "reason": "no"})


def mumbles(_prompt: str) -> str:
    return "hm"


class EveryCall(ToolCallRule):
    def find(self, context: ToolCallContext) -> Finding:
        return Finding("seen", FaultOwner.TOOL, 0.9, context.call.name, {})


EVERY_CALL = EveryCall()


def every_result(context: ToolCallContext, word: str) -> Finding | None:
    return Finding(word, FaultOwner.TOOL, 0.9, context.message, {}) if word in context.message else None


def every_span(span: object) -> None:
    del span


class AnyRule(Rule):
    pass


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "own_rules", sys.modules[HERE])
    monkeypatch.chdir(tmp_path)


def configured(tmp_path: Path, content: str) -> Path:
    (tmp_path / "spanloop.toml").write_text(content)
    return tmp_path


def failed_episode() -> World:
    world = World()
    world.call(list(OPENING), text("assistant", "It is 12."), trace=trace_id("t"))
    world.score(0.0, trace_id=trace_id("t"))
    return world


def test_without_a_file_nothing_changes(tmp_path: Path) -> None:
    conversion = conversion_settings(tmp_path, environment={})
    assert conversion.options == Options()
    assert not conversion.judge_counts


def test_a_judge_decides_an_episode_that_nothing_explains(tmp_path: Path) -> None:
    configured(tmp_path, '[attribution]\njudge = "own_rules:blames_the_plan"')
    conversion = conversion_settings(tmp_path, environment={})
    (row,) = failed_episode().convert(conversion.options).failures.to_dicts()
    assert (row["error_class"], row["rule"]) == ("wrong_plan", "llm_judge")
    assert conversion.judge_counts == {"answered": 1}


@pytest.mark.parametrize(
    ("judge", "count"),
    [('"own_rules:mumbles"', "unusable"), ('"dead"', "failed"), ('"broke"', "over_budget")],
)
def test_where_the_judge_fails_the_rules_decide_and_it_is_counted(tmp_path: Path, judge: str, count: str) -> None:
    endpoint = 'url = "http://127.0.0.1:1/v1"\nmodel = "m"\ntimeout_s = 2'
    configured(
        tmp_path,
        f"[attribution]\njudge = {judge}\n[models.dead]\n{endpoint}\n[models.broke]\n{endpoint}\nmax_calls = 0",
    )
    conversion = conversion_settings(tmp_path, environment={})
    (row,) = failed_episode().convert(conversion.options).failures.to_dicts()
    assert row["error_class"] == "wrong_answer"
    assert conversion.judge_counts == {count: 1}


def test_a_judge_that_is_down_is_not_asked_again_until_the_pause_is_over(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[float | None] = []
    now_s = 0.0

    class Dead(EndingRule):
        def find(self, episode: Episode, reward: float | None) -> None:
            del episode
            asked.append(reward)
            raise ConnectionError("refused")

    counts: Counter[str] = Counter()
    judge = guarded_judge(Dead(), counts, clock=lambda: now_s)
    options = Options(rules=RULES._replace(endings=(judge, *RULES.endings)))
    for _ in range(10):
        assert failed_episode().convert(options).failures["error_class"].to_list() == ["wrong_answer"]
    assert (len(asked), counts) == (MOST_FAILURES, {"failed": MOST_FAILURES, "skipped": 10 - MOST_FAILURES})
    assert len(caplog.records) == 1
    now_s = PAUSE_S
    failed_episode().convert(options)
    assert len(asked) == MOST_FAILURES + 1


@pytest.mark.parametrize(
    ("rules", "error_class"),
    [
        ('["own_rules:EVERY_CALL", "default"]', "seen"),
        ('["default", "own_rules:EVERY_CALL"]', "tool_error"),
        ('["own_rules:EVERY_CALL"]', "seen"),
        ('["own_rules:EveryCall", "default"]', "seen"),
        ('["own_rules:every_result:word=boom", "default"]', "boom"),
        ('["own_rules:every_result:word=bang", "default"]', "tool_error"),
        ('["tool_raised"]', "tool_error"),
    ],
)
def test_rules_speak_in_the_order_of_the_file(tmp_path: Path, rules: str, error_class: str) -> None:
    configured(tmp_path, f"[attribution]\nrules = {rules}")
    options = conversion_settings(tmp_path, environment={}).options
    world, seen = World(), list(OPENING)
    for message in (asks("c1"), answers("c1", "Error: boom")):
        if message["role"] == "assistant":
            world.call(seen, message, trace=trace_id("t"))
        seen.append(message)
    world.call(seen, text("assistant", "done"), trace=trace_id("t"))
    assert world.convert(options).failures["error_class"].to_list() == [error_class]


def test_a_rule_without_needs_sign_sees_calls_that_worked() -> None:
    options = Options(rules=RULES._replace(tool_calls=(EVERY_CALL, *RULES.tool_calls)))
    world, seen = World(), list(OPENING)
    world.call(seen, asks("c1"), trace=trace_id("t"))
    seen += [asks("c1"), answers("c1", "sunny")]
    world.call(seen, text("assistant", "sunny"), trace=trace_id("t"))
    assert world.convert(options).failures["error_class"].to_list() == ["seen"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[attribution]\njudge = "nobody"', "No judge is called 'nobody'"),
        ('[attribution]\njudge = "own_rules:NO_RULE"', "is int, expected a callable or a subclass of Judge"),
        ('[attribution]\njudge = "model:model=nobody"', "model 'nobody' is not in spanloop.toml"),
        ('[attribution]\njudge = "own_rules:mumbles:loudly=1"', "there is no option 'loudly'"),
        ('[attribution]\nrules = ["nobody"]', "No attribution rule is called 'nobody'.*Known:.*unknown_tool"),
        ('[attribution]\nrules = ["own_rules:NO_RULE"]', "is int, expected a callable or a subclass of Rule"),
        ('[attribution]\nrules = ["own_rules:every_span"]', r"takes \(span\), expected one of \(step\), \(context\)"),
        ('[attribution]\nrules = ["own_rules:AnyRule"]', "expected a subclass of one of ModelCallRule"),
        ('[attribution]\nrules = ["own_rules:every_result"]', "option 'word' is required"),
        ('[attribution]\nrules = ["loop:round=4"]', "no option 'round' .got '4'.; did you mean 'rounds'"),
        ('[attribution]\nrules = ["loop:rounds=1"]', "option 'rounds' is '1', expected greater than or equal to 2"),
        ('[rewards]\nfunctions = ["nobody"]', "No reward function is called 'nobody'"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_converted(
    tmp_path: Path, content: str, message: str
) -> None:
    configured(tmp_path, content)
    with pytest.raises(ConfigurationError, match=f"(?s){message}"):
        conversion_settings(tmp_path, environment={})


def test_a_rule_named_beside_the_default_takes_the_place_of_the_built_in(tmp_path: Path) -> None:
    configured(tmp_path, '[attribution]\nrules = ["loop:rounds=5", "default"]')
    rules = conversion_settings(tmp_path, environment={}).options.rules
    assert [(rule.name, rule.option_values()) for rule in rules.episodes] == [
        ("loop", {"rounds": 5, "most_steps": 3}),
        ("crash", {}),
    ]
    assert rules.tool_calls == RULES.tool_calls


def test_rewards_of_the_environment_replace_those_of_the_file(tmp_path: Path) -> None:
    configured(tmp_path, '[rewards]\nfunctions = ["agent"]')
    names = [
        [reward.name for reward in conversion_settings(tmp_path, environment=environment).options.reward_functions]
        for environment in ({}, {"SPANLOOP_REWARDS": "latency"})
    ]
    assert names == [["agent"], ["latency"]]


def test_thrown_away_answers_are_trained_on_where_the_file_says_so(tmp_path: Path) -> None:
    found = configured(tmp_path, "[training]\nabandoned_attempts = true\n")
    assert conversion_settings(found, environment={}).options == Options(train_abandoned_attempts=True)

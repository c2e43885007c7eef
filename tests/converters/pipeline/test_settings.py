import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.pipeline import run
from spanloop.pipeline.run import memory_from_environment, options_from_environment
from spanloop.semconv.environment import CONVERT_MEMORY_ENV, REWARDS_ENV

from ..converters.converters_world import loop, trace_id
from ..converters.pipeline_feed import Feed


def test_without_a_setting_nothing_but_scores_counts() -> None:
    assert (
        options_from_environment({}).reward_functions
        == options_from_environment({REWARDS_ENV: " , "}).reward_functions
        == ()
    )


def test_the_environment_names_reward_functions() -> None:
    named = options_from_environment({REWARDS_ENV: "agent, speed=latency"}).reward_functions
    assert [reward.name for reward in named] == ["agent", "speed"]


def test_an_unknown_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nonsense"):
        options_from_environment({REWARDS_ENV: "nonsense"})


def test_a_run_asks_them_and_a_score_that_comes_later_is_the_reward(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REWARDS_ENV, "agent,speed=latency")
    loop(feed.world, "a", trace=trace_id("a"))
    feed.send()
    run(feed.store)
    (before,) = feed.episodes()
    assert before["reward"] == pytest.approx((before["reward_breakdown"]["agent"] + 1.0) / 2)
    assert before["reward_breakdown"]["agent/completion"] > 0
    feed.world.score(0.25, trace_id=trace_id("a"), at_s=500)
    feed.send()
    run(feed.store)
    (after,) = feed.episodes()
    assert (after["reward"], after["reward_breakdown"]["speed"]) == (0.25, 1.0)
    assert after["revision"] > before["revision"]


@pytest.mark.parametrize(
    ("said", "mib"), [({}, 2_048), ({CONVERT_MEMORY_ENV: ""}, 2_048), ({CONVERT_MEMORY_ENV: "512"}, 512)]
)
def test_the_environment_says_how_much_memory(said: dict[str, str], mib: int) -> None:
    assert memory_from_environment(said) == mib << 20


@pytest.mark.parametrize("said", ["2 GiB", "-1", "0", "1e3"])
def test_what_is_no_number_of_mebibytes_is_refused(said: str) -> None:
    with pytest.raises(ConfigurationError, match=CONVERT_MEMORY_ENV):
        memory_from_environment({CONVERT_MEMORY_ENV: said})

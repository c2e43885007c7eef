"""An installed package offers reward functions by entry point: a real distribution on the path, found by name."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.converters import Options
from spanloop.converters.rewards import reward_functions
from spanloop.foundation.errors import ConfigurationError

from .converters_world import World, loop, trace_id

MODULE = '''
def short(attempt):
    """1 for an attempt of few steps."""
    return 1.0 if len(attempt.episode.steps) <= 2 else 0.0


class Settings:
    @staticmethod
    def half(attempt):
        return 0.5


not_a_function = 3
'''

ENTRY_POINTS = """
[console_scripts]
tiny = tiny_rewards:short

[spanloop.rewards]
short = tiny_rewards:short
half = tiny_rewards:Settings.half
missing_module = tiny_rewards_that_is_not_there:short
missing_name = tiny_rewards:long
number = tiny_rewards:not_a_function
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The distribution ``tiny-rewards`` as an installer leaves it."""
    folder = tmp_path / "tiny_rewards-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-rewards\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "RECORD").write_text("tiny_rewards.py,,\n")
    (tmp_path / "tiny_rewards.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    yield
    sys.modules.pop("tiny_rewards", None)


@pytest.mark.usefixtures("installed")
def test_an_installed_packages_function_judges_episodes_under_its_name() -> None:
    world = World()
    loop(world, "a", trace=trace_id("a"), steps=2)
    loop(world, "b", trace=trace_id("b"), steps=3)
    functions = reward_functions(["short"])
    assert [named.name for named in functions] == ["short"]
    converted = world.convert(Options(reward_functions=functions))
    rewards = dict(converted.episodes.select("step_count", "reward").rows())
    assert rewards == {2: 1.0, 3: 0.0}
    assert converted.rejected.filter(converted.rejected["reason"] != "context").is_empty()


@pytest.mark.usefixtures("installed")
def test_an_attribute_of_a_class_and_another_name_to_store_it_by() -> None:
    world = World()
    loop(world, "a", trace=trace_id("a"))
    (named,) = reward_functions(["reward=half"])
    assert named.name == "reward"
    converted = world.convert(Options(reward_functions=(named,)))
    assert converted.transitions["reward"].to_list() == [0.5] * 3


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing_module", "tiny_rewards_that_is_not_there"),
        ("missing_name", "long"),
        ("number", "expected a callable"),
        ("tiny", "Known: .*half.*short"),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_named_with_what_to_do(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        reward_functions([name])


def test_without_the_package_its_function_is_not_known() -> None:
    with pytest.raises(ConfigurationError, match="No reward function is called 'short'"):
        reward_functions(["short"])

"""The village with one wolf: who knows what, who wins, self-play, and a whole game from spans to an episode."""
# pyright: reportPrivateUsage=false

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import werewolves
from examples.werewolves.tasks import NAMES, make_tasks
from werewolves import Werewolves

from spanloop.evaluation.environments import Action, Environment, EnvironmentFailedError, EnvironmentSettings
from spanloop.store.client import Address

from ..instrumentation.support import EXAMPLES, modelling, says
from .attempts import run_acting

SETTINGS = EnvironmentSettings(**tomllib.loads((EXAMPLES / "werewolves" / "app.toml").read_text())["environment"])
VILLAGER: dict[str, Any] = {
    "task_id": "t",
    "names": ["Kim", "Liam", "Mona", "Nils", "Olga"],
    "role": "villager",
    "seed": 3,
}
WOLF: dict[str, Any] = {**VILLAGER, "role": "wolf"}


def claims(text: object) -> dict[str, str]:
    """Player → place, in an observation."""
    words = str(text).replace("?", ".").split(". ")
    return {name: rest.split()[-1].strip(".") for name, _, rest in (each.partition(": ") for each in words) if rest}


def say(game: Environment, text: str) -> Any:
    return game.step(Action("", {}, text))


def test_training_and_test_share_no_name_and_each_role_is_half() -> None:
    assert not set(NAMES["train"]) & set(NAMES["test"])
    tasks = make_tasks("test", 40, 0)
    assert Counter(task.role for task in tasks) == {"villager": 20, "wolf": 20}
    assert tasks == make_tasks("test", 40, 0) != make_tasks("test", 40, 1)


@pytest.mark.parametrize("players", [3, 4, 5])
def test_a_villager_finds_the_wolf_by_asking(players: int) -> None:
    won = 0
    for seed in range(8):
        game = Werewolves(players=players)
        told = claims(game.reset({**VILLAGER, "seed": seed}, 0))
        assert list(told) == VILLAGER["names"][1:players]
        wolf = ""
        for name, place in told.items():
            if claims(say(game, f"ask {name}").observation) != {name: place}:
                wolf = name
        assert wolf
        assert say(game, "ask Liam").error, "more questions than others"
        result = say(game, f"vote {wolf.lower()}.")
        assert (result.reward, result.done, result.success) == (1.0, True, True)
        assert result.reason == f"{wolf} is the wolf; the vote was against {wolf}."
        won += 1
    assert won == 8


def test_a_wrong_vote_loses() -> None:
    rewards = set[float]()
    for name in ("Liam", "Mona"):
        game = Werewolves()
        game.reset(VILLAGER, 0)
        rewards.add(say(game, f"vote {name}").reward)
    assert rewards == {0.0, 1.0}


@pytest.mark.parametrize(("second", "reward"), [("say inn", 1.0), ("say mill", 0.0)])
def test_a_wolf_that_stays_with_its_place_is_not_found(second: str, reward: float) -> None:
    game = Werewolves()
    assert "You are Kim, the wolf." in str(game.reset(WOLF, 0))
    assert say(game, "vote Liam").error, "the wolf says a place first"
    assert say(game, "say Inn.").observation == "Liam asks you: where were you?"
    result = say(game, second)
    assert (result.reward, result.done) == (reward, True)


def test_a_task_without_a_role_fails() -> None:
    with pytest.raises(EnvironmentFailedError, match="lacks 3 names, or a role"):
        Werewolves().reset({**VILLAGER, "role": "mayor"}, 0)


@pytest.mark.parametrize(
    ("task", "moves", "spoken", "reward"),
    [
        (VILLAGER, ("ask {wolf}", "vote {wolf}"), "say {claim}", 1.0),  # the model hides well, and the guess is right
        (WOLF, ("say inn", "say mill"), "vote Mona", 1.0),  # the model votes against another one
        (WOLF, ("say inn", "say inn"), "vote Kim", 0.0),
    ],
)
def test_in_self_play_the_endpoints_model_plays_the_others(
    monkeypatch: pytest.MonkeyPatch,
    task: dict[str, Any],
    moves: tuple[str, ...],
    spoken: str,
    reward: float,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-needed")
    with modelling() as model:
        monkeypatch.setattr(werewolves, "_model", Mock(return_value="m"))
        game = Werewolves(opponents=model.url)
        told = claims(game.reset(task, 0))
        wolf = game._wolf
        names = {"wolf": wolf, "claim": told.get(wolf, "")}
        model.script = (says(spoken.format(**names)),)
        result = [say(game, move.format(**names)) for move in moves][-1]
        shown = [message["content"] for message in model.requests[-1]["messages"]]
    assert result.reward == reward
    assert shown[-1].endswith("where were you?" if task is VILLAGER else f"Kim: I was at the {moves[1].split()[1]}.")
    assert not any("Kim, the wolf" in text for text in shown[-3:]), "a role was told"


@pytest.mark.usefixtures("store")
def test_a_game_is_an_episode_which_the_village_judges(address: Address, tmp_path: Path) -> None:
    script = (says("Hello!"), says("say inn\nand more"), says("say inn"))
    played, outcome = run_acting(
        "werewolves", "play", settings=SETTINGS, task=WOLF, script=script, address=address, data_dir=tmp_path
    )
    assert (played.errors, played.answers) == ([], ["say inn"])
    assert (outcome.reward, outcome.steps, outcome.success) == (1.0, 3, True)
    texts = [message["content"] for message in played.requests[-1]["messages"]]
    assert texts[-3:] == [
        "Write: say PLACE. Places: mill, inn, church, market, well.",
        "say inn",
        "Liam asks you: where were you?",
    ]
    assert played.transitions["episode_id"].n_unique() == 1
    assert played.transitions.height == 3

"""A village with one wolf: villagers find out who it is, and the wolf hides. Nobody sees the role of another player.

Everybody says where they were. A villager asks and votes; a player who names another place when asked is the wolf. The
wolf says a place, and says it again when it is asked. The agent plays either role; the others follow a script, or are
played by the model of an endpoint: with the gateway's, the agent plays against itself.
"""

import random
from functools import cache

from openai import OpenAI, OpenAIError
from player import OPENING, speak
from pydantic import Field, JsonValue, PrivateAttr

from spanloop.evaluation.environments import Action, Environment, EnvironmentFailedError, Fields, StepResult

PLACES = ("mill", "inn", "church", "market", "well")
SCRIPT = "script"


class Werewolves(Environment):
    """A village with one wolf: ask and vote as a villager, hide as the wolf."""

    players: int = Field(default=3, ge=3, le=5)
    """Number of players, with the agent."""
    opponents: str = SCRIPT
    """The players of the other roles: script, or the URL of an endpoint, such as http://127.0.0.1:8010/v1."""

    _names: list[str] = PrivateAttr(default_factory=list[str])
    _claims: dict[str, str] = PrivateAttr(default_factory=dict[str, str])
    """Player → where it says it was."""
    _wolf: str = PrivateAttr(default="")
    _questions: int = PrivateAttr(default=0)
    _random: random.Random = PrivateAttr(default_factory=random.Random)

    @property
    def takes_messages(self) -> bool:
        """Players talk."""
        return True

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Return who the agent is, and what the others say."""
        names, role = task.get("names"), task.get("role")
        if not isinstance(names, list) or len(names) < self.players or role not in {"villager", "wolf"}:
            raise EnvironmentFailedError(f"task {task.get('task_id', '')!r} lacks {self.players} names, or a role")
        self._random = random.Random(f"{task.get('seed', seed)}")
        self._names = [str(name) for name in names[: self.players]]
        self._wolf = self._names[0] if role == "wolf" else self._random.choice(self._names[1:])
        self._claims = {name: self._random.choice(PLACES) for name in self._names[1:]}
        return self._scene(self._names[0])

    def _scene(self, player: str) -> str:
        """Return what a player knows at the start."""
        others = " ".join(f"{name}: I was at the {place}." for name, place in self._claims.items() if name != player)
        if player == self._wolf:
            return f"You are {player}, the wolf. {others} Where were you?"
        return f"You are {player}, a villager. {others} Who is the wolf?"

    def step(self, action: Action) -> StepResult:
        """Ask, vote or say a place."""
        verb, _, rest = action.message.strip().strip(".?!").partition(" ")
        me, rest = self._names[0], rest.strip().lower()
        player = next((name for name in self._names[1:] if name.lower() == rest), "")
        match verb.lower():
            case "say" if me == self._wolf and rest in PLACES:
                return self._hide(rest)
            case "ask" if me != self._wolf and player and self._questions < self.players - 1:
                self._questions += 1
                return StepResult(f"{player}: I was at the {self._answer(player, me)}.", reward=0.0)
            case "vote" if me != self._wolf and player:
                return self._end(player == self._wolf, f"{self._wolf} is the wolf; the vote was against {player}.")
            case _:
                return StepResult(self._rule(), reward=0.0, error=True)

    def _rule(self) -> str:
        if self._names[0] == self._wolf:
            return f"Write: say PLACE. Places: {', '.join(PLACES)}."
        return "Write: vote NAME." if self._questions >= self.players - 1 else "Write: ask NAME, or: vote NAME."

    def _hide(self, place: str) -> StepResult:
        """Take the wolf's place: first what it says to all, then what it says when it is asked."""
        me = self._names[0]
        if me not in self._claims:
            self._claims[me] = place
            asking = self._names[1]
            return StepResult(f"{asking} asks you: where were you?", reward=0.0)
        voted = self._vote(self._names[1], place)
        return self._end(voted != me, f"{me} said {self._claims[me]}, then {place}; the vote was against {voted}.")

    def _end(self, is_won: bool, reason: str) -> StepResult:  # noqa: FBT001 - one outcome, not a switch
        return StepResult("The game is over.", reward=float(is_won), done=True, success=is_won, reason=reason)

    def _answer(self, player: str, asking: str) -> str:
        """Return the place that a player names when it is asked; a villager tells the truth again."""
        claim = self._claims[player]
        if player != self._wolf:
            return claim
        if self.opponents == SCRIPT:
            return self._random.choice([place for place in PLACES if place != claim])
        turns = [self._scene(player), f"say {claim}", f"{asking} asks you: where were you?"]
        said = self._played(turns).lower().strip(".").split()
        return next((word for word in said if word in PLACES), "woods")

    def _vote(self, player: str, answer: str) -> str:
        """Return against whom a villager votes after the wolf's answer."""
        others = [name for name in self._names if name != player]
        if self.opponents != SCRIPT:
            turns = [self._scene(player), f"ask {self._wolf}", f"{self._wolf}: I was at the {answer}."]
            words = self._played(turns).lower().strip(".").split()
            return next((name for name in others if name.lower() in words), others[-1])
        if answer != self._claims[self._wolf]:
            return self._wolf
        return self._random.choice([name for name in others if name != self._wolf])

    def _played(self, turns: list[str]) -> str:
        """Return what the model of the endpoint says after turns, of which the odd ones are its own."""
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
        try:
            return speak(_client(self.opponents), _model(self.opponents), [*OPENING, *messages])
        except OpenAIError as error:
            raise EnvironmentFailedError(f"the model at {self.opponents} gave no answer: {error}") from error


@cache
def _client(url: str) -> OpenAI:
    return OpenAI(base_url=url, max_retries=2)


@cache
def _model(url: str) -> str:
    return _client(url).models.list().data[0].id

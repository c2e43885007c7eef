"""Gymnasium's frozen lake in words: what lies around the player, and where the goal is."""

from pydantic import JsonValue

from spanloop.evaluation.environments.gymnasium_environment import GymnasiumEnvironment

_MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
_TILES = {"S": "ice", "F": "ice", "H": "hole", "G": "goal"}


class Lake(GymnasiumEnvironment):
    """The frozen lake: walk to the goal, and fall into no hole."""

    id: str = "FrozenLake-v1"
    """Name in Gymnasium's registry."""
    kwargs: str = '{"is_slippery": false}'
    """Arguments of ``gymnasium.make``; the map comes from the task."""
    actions: str = "left,down,right,up"
    """Names of the actions."""
    description: str = "Walk one step."
    """What the tool does."""

    def describe(self, observation: object) -> JsonValue:
        """Return the tiles around the player, and the way to the goal."""
        tiles = [[cell.decode() for cell in row] for row in self.env.unwrapped.desc.tolist()]
        row, column = divmod(int(str(observation)), len(tiles[0]))
        around = [f"{move} {_tile(tiles, row + down, column + right)}" for move, (down, right) in _MOVES.items()]
        goal_row, goal_column = next(
            (y, x) for y, line in enumerate(tiles) for x, tile in enumerate(line) if tile == "G"
        )
        return f"{', '.join(around)}. Goal: {_way(goal_row - row, goal_column - column)}."


def _tile(tiles: list[list[str]], row: int, column: int) -> str:
    inside = 0 <= row < len(tiles) and 0 <= column < len(tiles[0])
    return _TILES[tiles[row][column]] if inside else "wall"


def _way(down: int, right: int) -> str:
    parts = [f"{abs(down)} {'down' if down > 0 else 'up'}"] if down else []
    parts += [f"{abs(right)} {'right' if right > 0 else 'left'}"] if right else []
    return ", ".join(parts) or "here"

"""A transition's conversation, read back from its row."""

from dataclasses import dataclass

from ..messages import Message, MessageReader, chain, parse_json


@dataclass(frozen=True, slots=True)
class Turn:
    """A row of ``transitions`` as messages."""

    episode_id: str
    step: int
    messages: tuple[Message, ...]
    """State and action."""
    digests: tuple[bytes, ...]
    """Running digest of ``messages``, parallel to it."""
    tools: str
    reward: float | None

    @property
    def action(self) -> Message:
        """What the policy said."""
        return self.messages[-1]

    @property
    def state_digest(self) -> bytes:
        """The same for the same state with the same tools."""
        before = self.digests[-2] if len(self.digests) > 1 else b""
        return before + self.tools.encode("utf-8", "surrogatepass")


class TurnReader:
    """Reads rows; what one row repeats of another is read once."""

    def __init__(self) -> None:
        self._reader = MessageReader()

    def read(self, row: dict[str, object]) -> Turn:
        """One row's turn."""
        state = self._reader.read(str(row["state"]) or "[]")
        action = self._reader.read(f"[{row['action']}]")
        messages = (*state, *action)
        reward = row["reward"]
        return Turn(
            episode_id=str(row["episode_id"]),
            step=int(str(row["step"])),
            messages=messages,
            digests=chain(messages),
            tools=str(row["tools"]),
            reward=float(str(reward)) if reward is not None else None,
        )


def has_action(action: str) -> bool:
    """Whether an action, as a row holds it, says anything."""
    found = parse_json(action)
    return isinstance(found, dict) and bool(found.get("parts"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]

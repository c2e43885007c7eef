"""Made-up agents for the conversion's benchmark: 20 spans a trace, as plain values, for us and for a peer alike.

A session, an agent, eight model calls with a tool call after each but the last, an end and a reward. Every call's input
repeats its history; every prompt's tokens are those of the call before, what was sampled then, and 64 new ones. Needs
nothing but Python, because a peer's environment imports it too.
"""

from dataclasses import dataclass

TURNS = 8
SPANS = 2 * TURNS + 4
PROFILES = {"tokens": 40, "messages": 400}
"""Profile → characters a message. Token ids are in both."""


@dataclass(frozen=True)
class Turn:
    """One model call, and the tool that ran after it."""

    seen: tuple[tuple[str, str], ...]
    """(role, text) of every message of the input; of an assistant's the query that it asked the tool."""
    said: str
    """The query, or in the last turn the answer."""
    is_last: bool
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    result: str
    """What the tool answered."""


def turns(number: int, characters: int) -> list[Turn]:
    """The turns of trace ``number``."""
    seen = [
        ("system", "You are a careful assistant. ".ljust(characters, "s")),
        ("user", f"Question {number}: ".ljust(characters, "u")),
    ]
    prompt = tuple((number + token) % 50_000 for token in range(256))
    found: list[Turn] = []
    for turn in range(TURNS):
        is_last = turn == TURNS - 1
        said = "The answer is ready. ".ljust(characters, "a") if is_last else f"query {number} {turn}"
        response = tuple((number + turn + 3 * token) % 50_000 for token in range(64))
        result = f"Page {turn} of {number}: ".ljust(characters, "r")
        found.append(Turn(tuple(seen), said, is_last, prompt, response, result))
        seen += [("assistant", said), ("tool", result)]
        prompt = (*prompt, *response, *((number + turn + 7 * token) % 50_000 for token in range(64)))
    return found

"""A game of guessing a number, played by halves."""

from extending.environments import HigherLower

from spanloop.evaluation.environments import Action


def test_the_hints_lead_to_the_number() -> None:
    game = HigherLower(most=16)
    assert game.reset({"task_id": "t"}, 3) == "Guess my number, from 1 to 16."
    low, high = 1, 16
    result = game.step(Action("guess", {"number": 8}))
    while not result.done:
        low, high = ((low + high) // 2 + 1, high) if result.observation == "Higher." else (low, (low + high) // 2 - 1)
        result = game.step(Action("guess", {"number": (low + high) // 2}))
    assert (result.reward, result.done) == (1.0, True)
    assert game.reset({"task_id": "t"}, 3) == game.reset({"task_id": "t"}, 4)

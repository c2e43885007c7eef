import json

import pytest

from spanloop.training.sampling import Sampling, sampling_of


def step(**parameters: str) -> str:
    return json.dumps(parameters)


@pytest.mark.parametrize(
    ("steps", "temperature"),
    [
        ([], 1.0),
        (["{}"], 1.0),
        ([step(max_tokens="64", seed="3")], 1.0),
        ([step(temperature="0.7")], 0.7),
        ([step(temperature="0.699999988079071"), step(temperature="0.7")], 0.7),
        ([step(temperature="0")], 0.0),
        ([step(temperature="1e-6")], 0.0),
        ([step(temperature="0.7"), "{}"], None),
        ([step(temperature="warm")], None),
        ([step(temperature="-1")], None),
        ([step(temperature="nan")], None),
    ],
)
def test_the_temperature_of_a_row_is_that_of_all_its_steps(steps: list[str], temperature: float | None) -> None:
    assert sampling_of(steps) == Sampling(temperature, is_truncated=False)


@pytest.mark.parametrize(
    ("name", "neutral", "bent"),
    [
        ("top_p", ["1", "1.0"], ["0.95", "odd"]),
        ("top_k", ["0", "-1"], ["40"]),
        ("min_p", ["0", "0.0"], ["0.05"]),
        ("frequency_penalty", ["0"], ["0.5", "-0.5"]),
        ("presence_penalty", ["0"], ["1"]),
        ("repetition_penalty", ["1", "1.0"], ["1.1"]),
        ("min_tokens", ["0"], ["8"]),
        ("logit_bias", ["{}"], ['{"50": -100}']),
        ("bad_words", ["[]"], ['["no"]']),
        ("allowed_token_ids", [], ["[1, 2]"]),
        ("response_format", ['{"type": "text"}'], ['{"type": "json_object"}']),
        ("structured_outputs", [], ['{"choice": ["a", "b"]}']),
        ("tool_choice", ["auto", "none"], ["required", '{"type": "function"}']),
        ("max_tokens", ["1", "64"], []),
        ("stop", ['["x"]'], []),
    ],
)
def test_what_bends_the_distribution_is_told_from_what_does_not(name: str, neutral: list[str], bent: list[str]) -> None:
    assert [text for text in [*neutral, *bent] if sampling_of(["{}", step(**{name: text})]).is_truncated] == bent

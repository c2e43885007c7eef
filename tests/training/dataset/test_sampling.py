import json

import pytest

from spanloop.training.dataset.sampling import Sampling, sampling_of


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
    assert sampling_of(steps) == Sampling(temperature)


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
        ("parallel_tool_calls", ["true"], ["false"]),
        ("use_beam_search", ["false"], ["true"]),
        ("watermarking", ["false"], ["true"]),
        ("thinking_token_budget", ["-1"], ["0", "512"]),
        ("vllm_xargs", ["{}"], ['{"a": 1}']),
        ("modalities", ['["text"]'], ['["text", "audio"]']),
        ("logprobs_mode", ["processed_logprobs", "raw_logprobs"], ["raw_logits"]),
        ("strict_tools", [], ['["price"]', "[]"]),
        ("a_parameter_of_tomorrow", [], ["1", "false", "null"]),
        ("max_tokens", ["1", "64"], []),
        ("user", ["u"], []),
        ("stop", ['["x"]'], []),
    ],
)
def test_what_bends_the_distribution_is_told_from_what_does_not(name: str, neutral: list[str], bent: list[str]) -> None:
    constrained_by = {text: sampling_of(["{}", step(**{name: text})]).constrained_by for text in (*neutral, *bent)}
    assert constrained_by == dict.fromkeys(neutral, ()) | dict.fromkeys(bent, (name,))


def test_a_row_names_every_parameter_that_constrained_one_of_its_steps() -> None:
    steps = [step(top_k="20", top_p="1", seed="3"), step(strict_tools='["f"]', top_k="5"), "{}"]
    assert sampling_of(steps) == Sampling(1.0, ("strict_tools", "top_k"))


def test_log_probabilities_from_before_the_temperature_are_used_at_temperature_1_only() -> None:
    assert sampling_of([step(logprobs_mode="raw_logprobs", temperature="1.0")]) == Sampling(1.0)
    assert sampling_of([step(logprobs_mode="raw_logprobs", temperature="0.7")]) == Sampling(0.7, ("logprobs_mode",))


def test_a_cut_value_constrains() -> None:
    assert sampling_of([step(logit_bias='{"1": 2, … (50000 characters)')]).constrained_by == ("logit_bias",)
    assert sampling_of([step(response_format="[" * 100_000)]).constrained_by == ("response_format",)

"""Captures join their calls exactly or not at all; token rows hold exactly what was sampled."""

import polars as pl
import pytest

from .converters_world import OPENING, World, answers, asks, text, trace_id

TRACE = trace_id("t")


def one_call(world: World, **where: object) -> str:
    return world.call(OPENING, text("assistant", "Sunny."), trace=TRACE, response_id="r1", **where)  # type: ignore[arg-type]


def only(frame: pl.DataFrame) -> dict[str, object]:
    assert frame.height == 1
    return frame.row(0, named=True)


def test_a_capture_joins_by_response_id() -> None:
    world = World()
    one_call(world, attributes={"gen_ai.request.top_p": "0.9"})
    world.capture([1, 2, 3], [4, 5], response_id="r1", version="tiny@v7")
    row = only(world.convert().transitions)
    assert (row["capture_join"], row["token_source"], row["policy_version"]) == ("response_id", "captured", "tiny@v7")
    assert (row["prompt_token_ids"], row["response_token_ids"]) == ([1, 2, 3], [4, 5])
    assert row["logprobs"] == pytest.approx([-0.504, -0.505])
    assert row["sampling"] == {"temperature": "1.0", "top_p": "0.9"}


def test_the_capture_knows_better_than_the_span_how_it_was_sampled() -> None:
    world = World()
    one_call(world, attributes={"gen_ai.request.temperature": "0.2"})  # a default that was not sent
    world.capture([1, 2, 3], [4, 5], response_id="r1")
    assert only(world.convert().transitions)["sampling"] == {"temperature": "1.0"}


def test_a_capture_joins_by_the_span_that_called_out() -> None:
    world = World()
    span = one_call(world)
    world.capture([1], [2], response_id="other-name", trace=TRACE, parent=span)
    assert only(world.convert().transitions)["capture_join"] == "traceparent"


def test_a_capture_joins_by_the_http_span_below_the_call() -> None:
    world = World()
    span = one_call(world)
    http = world.span("POST", {"http.request.method": "POST"}, trace=TRACE, parent=span)
    world.capture([1], [2], trace=TRACE, parent=http)
    assert only(world.convert().transitions)["capture_join"] == "traceparent"


def test_several_captures_for_one_call_are_ambiguous() -> None:
    world = World()
    span = one_call(world)
    world.capture([1], [2], trace=TRACE, parent=span, generation_id="g1")
    world.capture([1], [3], trace=TRACE, parent=span, generation_id="g2")
    converted = world.convert()
    row = only(converted.transitions)
    assert (row["untrainable_reason"], row["is_trainable"], row["response_token_ids"]) == (
        "ambiguous_capture",
        False,
        [],
    )
    assert "g1, g2" in str(row["untrainable_detail"])
    assert converted.trajectories.is_empty()


def test_the_response_id_decides_between_a_clients_retries() -> None:
    world = World()
    span = one_call(world)
    world.capture([1], [2], response_id="r0", trace=TRACE, parent=span)
    world.capture([1], [3], response_id="r1", trace=TRACE, parent=span)
    row = only(world.convert().transitions)
    assert (row["is_trainable"], row["response_token_ids"]) == (True, [3])


def test_one_capture_claimed_by_two_calls_is_ambiguous_for_both() -> None:
    world = World()
    one_call(world)
    world.call(OPENING, text("assistant", "Sunny."), trace=trace_id("u"), response_id="r1")
    world.capture([1], [2], response_id="r1")
    assert set(world.convert().transitions["untrainable_reason"].to_list()) == {"ambiguous_capture"}


@pytest.mark.parametrize(
    ("prompt", "response", "logprobs", "attributes"),
    [
        ([1], [2, 3], [-0.1], {}),
        ([1], [2, 3], [], {}),
        ([1], [], [], {}),
        ([], [2], [-0.1], {}),
        ([1], [2], [-0.1], {"gen_ai.usage.output_tokens": 5}),
        ([1], [2], [-0.1], {"gen_ai.usage.input_tokens": 5}),
    ],
)
def test_lengths_that_do_not_fit_are_a_mismatch(
    prompt: list[int], response: list[int], logprobs: list[float], attributes: dict[str, int]
) -> None:
    world = World()
    span = one_call(world, attributes=attributes)
    world.capture(prompt, response, response_id="r1", logprobs=logprobs)
    converted = world.convert()
    row = only(converted.transitions)
    assert row["untrainable_reason"] == "token_mismatch"
    assert span in str(row["untrainable_detail"])
    assert not converted.trajectories["is_trainable"].any()


def test_a_stream_that_the_gateway_saw_break_is_incomplete() -> None:
    world = World()
    one_call(world)
    world.capture([1], [2], response_id="r1", is_complete=False)
    converted = world.convert()
    assert only(converted.transitions)["untrainable_reason"] == "incomplete_stream"
    assert converted.failures["error_class"].to_list() == ["incomplete_stream"]


class Dialogue:
    """Three calls in one trace whose prompts the test chooses."""

    def __init__(self) -> None:
        self.world = World()
        self.seen = list(OPENING)
        self.step = 0

    def turn(
        self, prompt: list[int], response: list[int], *, ends: bool = False, seen: list[object] | None = None
    ) -> str:
        said = text("assistant", "done") if ends else asks(f"c{self.step}")
        span = self.world.call(seen or self.seen, said, trace=TRACE, response_id=f"r{self.step}")  # type: ignore[arg-type]
        self.world.capture(prompt, response, response_id=f"r{self.step}")
        self.seen += [said, answers(f"c{self.step}", "x")]
        self.step += 1
        return span

    def rows(self) -> list[dict[str, object]]:
        return list(self.world.convert().trajectories.sort("row_number").iter_rows(named=True))


def test_steps_whose_prompt_extends_the_row_are_merged_with_a_mask() -> None:
    dialogue = Dialogue()
    dialogue.turn([1, 2], [3, 4])
    dialogue.turn([1, 2, 3, 4, 9, 9], [5])
    dialogue.turn([1, 2, 3, 4, 9, 9, 5, 8], [6, 7], ends=True)
    (row,) = dialogue.rows()
    assert row["prompt_token_ids"] == [1, 2]
    assert row["response_token_ids"] == [3, 4, 9, 9, 5, 8, 6, 7]
    assert row["loss_mask"] == [1, 1, 0, 0, 1, 0, 1, 1]
    expected = [-0.503, -0.504, 0, 0, -0.505, 0, -0.506, -0.507]
    assert row["logprobs"] == pytest.approx(expected)
    assert (row["first_step"], row["last_step"], row["row_start"]) == (0, 2, "first")


def test_a_prompt_equal_to_the_context_adds_no_observation() -> None:
    dialogue = Dialogue()
    dialogue.turn([1], [2])
    dialogue.turn([1, 2], [3], ends=True)
    (row,) = dialogue.rows()
    assert (row["response_token_ids"], row["loss_mask"]) == ([2, 3], [1, 1])


def test_a_prompt_shorter_than_the_context_starts_a_row() -> None:
    dialogue = Dialogue()
    dialogue.turn([1], [2, 3])
    dialogue.turn([1, 2], [4], ends=True)
    first, second = dialogue.rows()
    assert (first["response_token_ids"], second["prompt_token_ids"]) == ([2, 3], [1, 2])
    assert second["row_start"] == "template_changed"
    assert second["loss_mask"] == [1]


def test_an_edited_history_starts_a_row() -> None:
    dialogue = Dialogue()
    dialogue.turn([1], [2])
    edited = [OPENING[0], OPENING[1], text("assistant", "(summary)"), text("user", "go on")]
    dialogue.turn([7, 7], [8], ends=True, seen=edited)  # type: ignore[arg-type]
    assert [row["row_start"] for row in dialogue.rows()] == ["first", "history_edited"]


def test_a_retry_is_not_merged_as_a_continuation() -> None:
    dialogue = Dialogue()
    dialogue.turn([1], [2])
    history = list(dialogue.seen)
    dialogue.turn([1, 2, 5], [6], ends=True)
    dialogue.turn([1, 2, 5], [7], ends=True, seen=history)  # type: ignore[arg-type]
    rows = dialogue.rows()
    assert [row["response_token_ids"] for row in rows] == [[2, 5, 6], [7]]
    assert [row["loss_mask"] for row in rows] == [[1, 0, 1], [1]]
    assert rows[1]["prompt_token_ids"] == [1, 2, 5]


def test_a_step_after_one_without_tokens_says_so() -> None:
    world = World()
    world.call(OPENING, asks("c0"), trace=TRACE, response_id="r0")
    world.call([*OPENING, asks("c0"), answers("c0", "x")], text("assistant", "y"), trace=TRACE, response_id="r1")
    world.capture([1, 2], [3], response_id="r1")
    converted = world.convert()
    assert only(converted.trajectories)["row_start"] == "no_tokens"
    assert converted.transitions.sort("step")["token_source"].to_list() == ["none", "captured"]


def test_agents_have_rows_of_their_own() -> None:
    world = World()
    for agent in ("planner", "worker"):
        span = world.span(
            "invoke_agent", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}, trace=TRACE
        )
        world.call(OPENING, text("assistant", "x"), trace=TRACE, parent=span, response_id=agent)
        world.capture([1], [2], response_id=agent)
    rows = world.convert().trajectories.sort("row_number")
    assert rows["agent_name"].to_list() == ["planner", "worker"]
    assert rows["row_start"].to_list() == ["first", "first"]


def test_a_step_that_must_not_be_trained_on_is_masked_within_its_row() -> None:
    world = World()
    world.call(OPENING, asks("c0"), trace=TRACE, response_id="r0", dropped=3)
    world.call([*OPENING, asks("c0"), answers("c0", "x")], text("assistant", "y"), trace=TRACE, response_id="r1")
    world.capture([1], [2], response_id="r0")
    world.capture([1, 2, 3], [4], response_id="r1")
    row = only(world.convert().trajectories)
    assert (row["loss_mask"], row["is_trainable"]) == ([0, 0, 1], True)
    assert row["logprobs"] == pytest.approx([0, 0, -0.504])


def test_an_environments_fault_masks_the_whole_episode() -> None:
    world = World()
    world.call(OPENING, asks("c0"), trace=TRACE, response_id="r0")
    world.call([*OPENING, asks("c0"), answers("c0", "x")], None, trace=TRACE, error="Rate limit reached: 429")
    world.capture([1], [2], response_id="r0")
    converted = world.convert()
    assert converted.transitions.sort("step")["untrainable_reason"].to_list() == ["environment_fault", "request_failed"]
    row = only(converted.trajectories)
    assert (row["is_trainable"], row["loss_mask"], row["untrainable_reason"]) == (False, [0], "environment_fault")


def test_further_choices_are_not_taken_for_retries() -> None:
    world = World()
    one_call(world)
    world.capture([1], [2], response_id="r1", generation_id="r1/0")
    world.capture([1], [3], response_id="r1", generation_id="r1/1")
    world.generations[-1]["choice_index"] = 1
    assert only(world.convert().transitions)["response_token_ids"] == [2]

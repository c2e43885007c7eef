"""What the client of environments records when an environment fails is the environment's fault, not the policy's."""

import pytest

from .converters_world import OPENING, World, answers, asks, text, trace_id

FAILED = (
    "the environment is unavailable: step has status 502: The environment 'lake:Lake' failed (task 't7', seed 3, step "
    "2): {}. Next: try the environment alone with this task and seed."
)
TYPE = "spanloop.instrumentation.environments.EnvironmentUnavailableError"


@pytest.mark.parametrize(
    "why",
    [
        "it did not answer step within 60 s",
        "its process ended during step (oh dear)",
        "step gave '42', expected a StepResult",
        "it raised ZeroDivisionError: a reward that raises",
    ],
)
@pytest.mark.parametrize("ends_there", [True, False])
def test_a_failure_of_an_environment_is_not_the_policys(why: str, ends_there: bool) -> None:  # noqa: FBT001
    world, seen, asked = World(), list(OPENING), asks("c1", "search", {"query": "north"})
    trace, message = trace_id("t"), FAILED.format(why)
    world.call(seen, asked, trace=trace)
    world.tool("c1", "", trace=trace, error=f"EnvironmentUnavailableError: {message}", exception=(TYPE, message))
    if not ends_there:
        seen += [asked, answers("c1", f"Error: {message}")]
        world.call(seen, text("assistant", "I cannot go on."), trace=trace)
    world.score(0.0, trace_id=trace)
    failures = world.convert().failures
    assert failures["fault_owner"].to_list()[0] in {"environment", "tool"}, failures.to_dicts()
    assert "policy" not in failures["fault_owner"].to_list()

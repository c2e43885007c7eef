"""Who called whom: by the place of model calls in their trace; a return and a further step are no call."""

from hypothesis import given
from hypothesis import strategies as st

from spanloop.dashboard.view_models.agent_graph import EpisodeSteps, Graph, Step, build_graph, layout


def step(agent: str, span: str, *tools: str, failed: dict[str, int] | None = None, is_failed: bool = False) -> Step:
    return Step(agent, ("t", span), tools, failed or {}, is_failed or bool(failed))


def graph(parents: dict[str, str], *steps: Step) -> Graph:
    return build_graph([EpisodeSteps("e", steps)], {("t", child): ("t", above) for child, above in parents.items()})


def calls(drawn: Graph) -> dict[str, tuple[int, int]]:
    name = {key: node.name for key, node in drawn.nodes.items()}
    return {f"{name[edge.source]} {name[edge.target]}": (edge.calls, edge.failures) for edge in drawn.edges}


PLANNER = {"p1": "P", "p2": "P", "p3": "P", "B": "tb", "tb": "P", "b1": "B", "b2": "B", "C": "tc", "tc": "P", "c1": "C"}
"""A planner's span P, in which tools run the agents B and C."""


def test_an_agent_calls_those_that_ran_in_its_span() -> None:
    steps = [step("planner", "p1"), step("b", "b1"), step("b", "b2"), step("planner", "p2"), step("c", "c1")]
    assert calls(graph(PLANNER, *steps)) == {"planner b": (1, 0), "planner c": (1, 0)}


def test_agents_that_run_at_once_do_not_call_each_other() -> None:
    steps = [step("planner", "p1"), step("b", "b1"), step("c", "c1"), step("b", "b2"), step("planner", "p2")]
    assert calls(graph(PLANNER, *steps)) == {"planner b": (1, 0), "planner c": (1, 0)}


def test_a_pipeline_goes_from_one_to_the_next() -> None:
    parents = {"A": "root", "B": "root", "C": "root", "a": "A", "b": "B", "c": "C"}
    assert calls(graph(parents, step("a", "a"), step("b", "b"), step("c", "c"))) == {"a b": (1, 0), "b c": (1, 0)}


def test_a_run_fails_when_a_step_of_it_does_and_counts_once() -> None:
    steps = [step("planner", "p1"), step("b", "b1", is_failed=True), step("b", "b2", is_failed=True)]
    assert calls(graph(PLANNER, *steps)) == {"planner b": (1, 1)}


def test_tools_are_counted_by_call_and_an_agent_is_no_tool() -> None:
    asks = step("planner", "p1", "transfer_to_b", "look", "look", failed={"look": 1})
    drawn = graph(PLANNER, asks, step("b", "b1", "look", failed={"look": 3}))
    assert calls(drawn) == {"planner look": (2, 1), "planner b": (1, 1), "b look": (1, 1)}
    assert drawn.nodes["tool:look"].calls == 3
    assert drawn.nodes["agent:planner"].episodes == {"e": True}


def test_nodes_stand_behind_those_that_call_them() -> None:
    places = layout(graph(PLANNER, step("planner", "p1", "look"), step("b", "b1", "look"), step("c", "c1")))
    assert places["agent:planner"].column == 0
    assert {places[key].column for key in ("agent:b", "agent:c", "tool:look")} == {1}
    assert len(set(places.values())) == len(places)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=12),
    st.dictionaries(st.integers(0, 9), st.integers(0, 9)),
)
def test_every_run_has_one_caller_at_most_whatever_the_parents_say(
    rows: list[tuple[int, int]], parents: dict[int, int]
) -> None:
    drawn = graph(
        {str(child): str(above) for child, above in parents.items()},
        *(step(f"a{agent}", str(span)) for agent, span in rows),
    )
    assert sum(node.calls for node in drawn.nodes.values()) == len(rows)
    assert sum(edge.calls for edge in drawn.edges) < len(rows)
    assert len(set(layout(drawn).values())) == len(drawn.nodes)

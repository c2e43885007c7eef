"""Agents and tools as a graph: who called whom, how often, and how many of the calls failed.

Invariant: a run of an agent has one caller at most, and counts as one call however many steps it takes. A tool that is
an agent of the same episodes is that agent, and no node beside it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

SpanKey = tuple[str, str]
"""Trace id and span id."""
_ROOT: Final = ("", "")
"""Stands above all traces of an episode."""
_HANDOFF: Final = re.compile(r"^(transfer|hand_?off|delegate)(_back)?_to_")
_MAX_DEPTH: Final = 1_000


class Step(NamedTuple):
    """One step of an episode, in the order of start."""

    agent: str
    span: SpanKey
    """The span of its model call; empty texts where it is not known."""
    tools: tuple[str, ...]
    """Names of the tools that it called, one for each call."""
    failed_tools: Mapping[str, int]
    """Tool → failures of its calls."""
    is_failed: bool


class EpisodeSteps(NamedTuple):
    """The steps of one episode."""

    episode_id: str
    steps: tuple[Step, ...]


@dataclass
class Node:
    """An agent or a tool."""

    kind: Literal["agent", "tool"]
    name: str
    calls: int = 0
    """Steps of an agent, calls of a tool."""
    failures: int = 0
    episodes: dict[str, bool] = field(default_factory=dict[str, bool])
    """Episode id → whether the node failed in it."""

    @property
    def key(self) -> str:
        """Identifies the node, in addresses too."""
        return f"{self.kind}:{self.name}"


@dataclass
class Edge:
    """The calls of one node by another."""

    source: str
    target: str
    calls: int = 0
    failures: int = 0
    """Calls with a failure."""
    episodes: dict[str, bool] = field(default_factory=dict[str, bool])

    def add(self, episode_id: str, calls: int, failures: int) -> None:
        """Count calls in an episode."""
        self.calls += calls
        self.failures += min(calls, failures)
        self.episodes[episode_id] = self.episodes.get(episode_id, False) or failures > 0


@dataclass
class Graph:
    """Nodes and edges, those with most calls first."""

    nodes: dict[str, Node]
    edges: list[Edge]


class _Run(NamedTuple):
    agent: str
    caller: "int | None"
    """Number of the run that called it."""
    steps: list[Step]


def build_graph(episodes: Sequence[EpisodeSteps], parents: Mapping[SpanKey, SpanKey]) -> Graph:
    """Return the graph of all calls in the episodes; ``parents`` are of the spans of episodes with several agents."""
    agents = {step.agent for each in episodes for step in each.steps}
    names = {_plain(agent): agent for agent in agents}
    nodes: dict[str, Node] = {}
    edges: dict[tuple[str, str], Edge] = {}

    def node(kind: Literal["agent", "tool"], name: str) -> Node:
        return nodes.setdefault(f"{kind}:{name}", Node(kind, name))

    def edge(source: str, target: str) -> Edge:
        return edges.setdefault((source, target), Edge(source, target))

    for episode_id, steps in episodes:
        for step in steps:
            agent = node("agent", step.agent)
            agent.calls += 1
            agent.failures += step.is_failed
            agent.episodes[episode_id] = agent.episodes.get(episode_id, False) or step.is_failed
            for name in dict.fromkeys(step.tools):
                if _plain(name) in names:
                    continue
                calls, failures = step.tools.count(name), step.failed_tools.get(name, 0)
                tool = node("tool", name)
                tool.calls += calls
                tool.failures += min(calls, failures)
                tool.episodes[episode_id] = tool.episodes.get(episode_id, False) or failures > 0
                edge(agent.key, tool.key).add(episode_id, calls, failures)
        runs = list(_runs(steps, parents))
        for run in runs:
            if run.caller is not None:
                is_failed = any(step.is_failed for step in run.steps)
                edge(f"agent:{runs[run.caller].agent}", f"agent:{run.agent}").add(episode_id, 1, int(is_failed))
    ordered = sorted(edges.values(), key=lambda each: (-each.calls, each.source, each.target))
    return Graph(dict(sorted(nodes.items(), key=lambda item: (-item[1].calls, item[0]))), ordered)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _HANDOFF.sub("", name.lower()))


def _runs(steps: Sequence[Step], parents: Mapping[SpanKey, SpanKey]) -> Iterator[_Run]:
    """Yield the runs of agents in an episode.

    A step belongs to the earlier step that is nearest to the root below their nearest common span: it continues the
    run of its own agent, and is called by another. An agent that goes on behind one that it called is not called.
    """
    if len({step.agent for step in steps}) < 2:
        yield _Run(steps[0].agent, None, list(steps))
        return
    runs: list[_Run] = []
    seen: defaultdict[SpanKey, list[tuple[int, int, int]]] = defaultdict(list)
    """Span → (steps below it: distance, minus their order, their run)."""
    for order, step in enumerate(steps):
        path = _path(step.span, parents)
        before = next((min(seen[span])[2] for span in path[1:] if span in seen), None)
        run = _continued(runs, before, step.agent)
        if run is None:
            run = len(runs)
            runs.append(_Run(step.agent, before, []))
        runs[run].steps.append(step)
        for distance, span in enumerate(path):
            seen[span].append((distance, -order, run))
    yield from runs


def _continued(runs: Sequence[_Run], before: int | None, agent: str) -> int | None:
    """Return the run that the agent goes on with: that before it, or the one that called that; None for a new run."""
    if before is None:
        return None
    if runs[before].agent == agent:
        return before
    caller = runs[before].caller
    return caller if caller is not None and runs[caller].agent == agent else None


def _path(span: SpanKey, parents: Mapping[SpanKey, SpanKey]) -> list[SpanKey]:
    """Return the span, its ancestors from the nearest on, and the place above all traces."""
    path, known = [span], {span}
    while (above := parents.get(path[-1])) is not None and above not in known and len(path) < _MAX_DEPTH:
        path.append(above)
        known.add(above)
    return [*path, _ROOT]


class Place(NamedTuple):
    """The place of a node in the drawing."""

    column: int
    row: int


def layout(graph: Graph) -> dict[str, Place]:
    """Return a column for each node, behind those that call it, and its row; a cycle is cut where it was entered."""
    called = {edge.target for edge in graph.edges if edge.source != edge.target}
    starts = [key for key in graph.nodes if key not in called] or list(graph.nodes)[:1]
    columns: dict[str, int] = {}
    following: defaultdict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        following[edge.source].append(edge.target)
    queue = list(starts)
    columns.update(dict.fromkeys(starts, 0))
    for key in queue:
        for target in following[key]:
            if target not in columns:
                columns[target] = columns[key] + 1
                queue.append(target)
    for key in graph.nodes:
        columns.setdefault(key, 0)
    rows: dict[str, int] = {}
    filled: defaultdict[int, int] = defaultdict(int)
    callers: defaultdict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        callers[edge.target].append(edge.source)
    # A node stands at the height of its callers, as far as there is room.
    for key in sorted(graph.nodes, key=lambda each: columns[each]):
        heights = [rows[caller] for caller in callers[key] if caller in rows and columns[caller] < columns[key]]
        row = max(filled[columns[key]], min(heights, default=0))
        rows[key], filled[columns[key]] = row, row + 1
    return {key: Place(columns[key], rows[key]) for key in graph.nodes}

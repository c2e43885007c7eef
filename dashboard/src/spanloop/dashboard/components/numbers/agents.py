"""The graph of agents and tools, and the episodes behind a node or a line of it."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import Any, Final

import polars as pl
import streamlit as st
from streamlit.components.v2 import component

from spanloop.dashboard.components import tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.frontend import asset
from spanloop.dashboard.queries import agents
from spanloop.dashboard.view_models.agent_graph import Edge, Graph, Node, build_graph, layout
from spanloop.dashboard.view_models.filters import Filters
from spanloop.dashboard.view_models.formatting import percent
from spanloop.store import Store

_MAX_NODES: Final = 60
_MAX_ROWS: Final = 100
_graph: Final[Any] = component(
    "spanloop_agent_graph",
    html='<div class="graph-host"></div>',
    css=asset("graph.css"),
    js=asset("common.js") + asset("graph.js"),
)


def show(store: Store, filters: Filters, view: str) -> None:
    """Draw the graph, its calls as a table, and the episodes of the node or line that the address names."""
    calls = agents.fetch_calls(store, filters)
    graph = _largest(build_graph(calls.steps, calls.parents))
    source, target = st.query_params.get("caller", ""), st.query_params.get("callee", "")
    hrefs = _Addresses(filters, view)
    _draw(graph, hrefs, source, target)
    newest = "newest " if calls.episodes.height == agents.MAX_EPISODES else ""
    st.caption(
        f"Of the {newest}{calls.episodes.height:,} episodes that match. A line counts calls; an agent is called once "
        "for a run, which failed when a step of it did. A box or a number opens the episodes behind it."
    )
    chosen = _chosen(graph, source, target)
    if chosen is not None:
        _episodes(calls.episodes, chosen, graph)
    elif source or target:
        st.warning("The address names a call that no episode has.", icon=":material/link_off:")
    _table(graph, hrefs, f"{source} {target}")


class _Addresses:
    def __init__(self, filters: Filters, view: str) -> None:
        self._filters, self._view = filters, view

    def of(self, source: str, target: str) -> str:
        """Return the address of the graph with a node or a line chosen."""
        changes = {"view": self._view, "caller": source, "callee": target}
        return f"numbers?{self._filters.query(**changes)}"


def _largest(graph: Graph) -> Graph:
    """Return the graph without the nodes that are called least, where it has too many to be drawn."""
    nodes = dict(list(graph.nodes.items())[:_MAX_NODES])
    return Graph(nodes, [edge for edge in graph.edges if edge.source in nodes and edge.target in nodes])


def _draw(graph: Graph, hrefs: _Addresses, source: str, target: str) -> None:
    places = layout(graph)
    nodes = [
        {
            **places[key]._asdict(),
            "key": key,
            "name": node.name,
            "kind": node.kind,
            "failures": node.failures,
            "text": _node_text(node),
            "title": f"{node.kind} {node.name}: {_node_text(node)}, in {len(node.episodes):,} episodes",
            "href": hrefs.of("", key),
            "isCurrent": not source and target == key,
        }
        for key, node in graph.nodes.items()
    ]
    edges = [
        {
            "source": edge.source,
            "target": edge.target,
            "calls": edge.calls,
            "failures": edge.failures,
            "text": f"{edge.calls:,}" + (f" · {percent(edge.failures, edge.calls)} failed" if edge.failures else ""),
            "title": f"{_name(graph, edge.source)} called {_name(graph, edge.target)} {edge.calls:,} times, "
            f"{edge.failures:,} failed",
            "href": hrefs.of(edge.source, edge.target),
            "isCurrent": (source, target) == (edge.source, edge.target),
        }
        for edge in graph.edges
    ]
    _graph(data={"nodes": nodes, "edges": edges}, key="agent_graph")


def _node_text(node: Node) -> str:
    unit = "step" if node.kind == "agent" else "call"
    counted = f"{node.calls:,} {unit}{'' if node.calls == 1 else 's'}"
    return f"{counted} · {percent(node.failures, node.calls)} failed" if node.failures else counted


def _name(graph: Graph, key: str) -> str:
    return graph.nodes[key].name


def _chosen(graph: Graph, source: str, target: str) -> Node | Edge | None:
    if not source:
        return graph.nodes.get(target)
    return next((edge for edge in graph.edges if (edge.source, edge.target) == (source, target)), None)


def _episodes(episodes: pl.DataFrame, chosen: Node | Edge, graph: Graph) -> None:
    """Draw the episodes of a node or a line, those in which it failed first."""
    if isinstance(chosen, Edge):
        name = f"{escape_md(_name(graph, chosen.source))} called {escape_md(_name(graph, chosen.target))}"
    else:
        name = f"the {chosen.kind} {escape_md(chosen.name)} was at work"
    failed = sum(chosen.episodes.values())
    st.subheader(f"{len(chosen.episodes):,} episodes in which {name}", anchor=False)
    st.caption(
        f"It failed in {failed:,} of them."
        + (f" The first {_MAX_ROWS} are shown." if len(chosen.episodes) > _MAX_ROWS else "")
    )
    rows = [row for row in episodes.iter_rows(named=True) if row["episode_id"] in chosen.episodes]
    rows.sort(key=lambda row: not chosen.episodes[row["episode_id"]])
    shown = rows[:_MAX_ROWS]
    tables.show_rows(
        [_episode_cells(row, chosen.episodes) for row in shown],
        {
            "started": tables.time_column("started"),
            "failed": Column("this call", "tag", "Whether it failed in the episode", 84),
            "outcome": Column("outcome", "tag", width=84),
            "agent": Column("agent", width=130),
            "task": Column("task"),
            "duration": Column("took", "number", width=80),
            "trace": Column("trace", "id", width=130),
            "episode": Column("episode", "id", width=130),
        },
        [address("traces", trace=row["trace_id"]) for row in shown],
        key="behind",
    )


def _episode_cells(row: Mapping[str, Any], failed: Mapping[str, bool]) -> dict[str, object]:
    return {
        "started": row["started_at"],
        "failed": tables.tag("failed", "bad") if failed[row["episode_id"]] else tables.tag("worked", "good"),
        "outcome": tables.tag(row["outcome"]),
        "agent": row["agent"],
        "task": row["task_id"],
        "duration": tables.duration_cell(row["duration_ns"]),
        "trace": row["trace_id"],
        "episode": tables.link_cell(row["episode_id"], address("episodes", episode=row["episode_id"])),
    }


def _table(graph: Graph, hrefs: _Addresses, current: str) -> None:
    if not graph.edges:
        st.caption("No agent of these episodes calls another one or a tool.")
        return
    st.subheader("Calls", anchor=False)
    tables.show_rows(
        [
            {
                "caller": _name(graph, edge.source),
                "callee": _name(graph, edge.target),
                "kind": tables.tag(
                    graph.nodes[edge.target].kind, "info" if edge.target.startswith("agent") else "warn"
                ),
                "calls": edge.calls,
                "failures": edge.failures,
                "share": {
                    "text": percent(edge.failures, edge.calls),
                    "share": edge.failures / edge.calls,
                    "key": edge.failures / edge.calls,
                },
                "episodes": len(edge.episodes),
            }
            for edge in graph.edges
        ],
        {
            "caller": Column("caller", width=190),
            "callee": Column("called", width=190),
            "kind": Column("kind", "tag", width=70),
            "calls": Column("calls", "number", width=80),
            "failures": Column("failed", "number", width=80),
            "share": Column("failure share", "progress", width=160),
            "episodes": Column("episodes", "number", width=90),
        },
        [hrefs.of(edge.source, edge.target) for edge in graph.edges],
        key=f"calls {current}",
    )

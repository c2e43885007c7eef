"""The tools: one question each. Their signatures and docstrings are what an assistant sees.

Invariant: every tool reads through the client of the request's key, at most so many at a time, and replies within its
limits. A question that cannot be answered is an error with its next step.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import polars as pl
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field, WithJsonSchema

from spanloop.client import Client
from spanloop.client.client import Grouping, ListName
from spanloop.client.filters import FILTER_NAMES
from spanloop.dashboard.queries.lists import ListPage
from spanloop.dashboard.view_models.filters import BY_NAME
from spanloop.foundation.errors import SpanloopError

from .authentication import KEY
from .clients import Clients
from .metrics import McpMetrics
from .replies import ReplyLimits, decode_place, encode_place, fit, reply, row_line
from .transcript import episode_line, step_texts

_STEPS: Final = 50
"""Steps that are read for one reply."""
_HELP: Final = {
    "time": "1h, 24h, 7d, 30d, today, yesterday (UTC), or 2026-01-31T08:00Z..2026-02-01T08:00Z",
    "q": "whole words that a message, an action or a failure has, or a part of an id",
    "match": "part: q finds parts of words too, in the newest episodes",
}


def _filter_schema() -> dict[str, Any]:
    one = {"type": ["string", "number"]}
    value = {"anyOf": [one, {"type": "array", "items": {"type": "string"}}]}
    properties = {name: {**value, "description": _describe(name)} for name in FILTER_NAMES}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "description": "What rows must match; several values of a field are alternatives. Empty matches everything.",
    }


def _describe(name: str) -> str:
    if name not in BY_NAME:
        return _HELP[name]
    field = BY_NAME[name]
    kinds = {"range": "a range such as 0.5.., ..3 or 1..2", "attribute": "name=value of a span's attribute"}
    texts = [field.label, kinds.get(field.kind, ""), field.help, " or ".join(field.options)]
    return "; ".join(text for text in texts if text)


FilterMap: TypeAlias = Annotated[
    dict[str, str | int | float | list[str]], WithJsonSchema(_filter_schema()), Field(default_factory=dict)
]
Limit: TypeAlias = Annotated[int, Field(ge=1, description="Most rows.")]
Sort: TypeAlias = Annotated[
    str, Field(description="Such as started, reward, tokens, duration or errors; -reward puts the largest first.")
]
After: TypeAlias = Annotated[str, Field(description="The place that an earlier reply named to go on.")]
Call: TypeAlias = Context[Any, Any]


class Tools:
    """The tools of one server.

    Args:
        clients: The clients of keys.
        limits: Of one reply.
        metrics: Counts questions.
        concurrent: Questions that are answered at the same time.
    """

    def __init__(self, clients: Clients, limits: ReplyLimits, metrics: McpMetrics, concurrent: int) -> None:
        self._clients = clients
        self._limits = limits
        self._metrics = metrics
        self._running = threading.BoundedSemaphore(concurrent)

    def register(self, server: MCPServer[Any]) -> None:
        """Add the tools to a server."""
        annotations = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
        for tool in (
            self.find_episodes,
            self.read_episode,
            self.find_steps,
            self.find_failures,
            self.find_traces,
            self.count,
            self.failure_groups,
            self.failing_tools,
            self.success_by,
            self.find_scores,
            self.score_summary,
            self.filter_values,
            self.data_sets,
            self.data_set_episodes,
            self.training_data,
        ):
            server.add_tool(tool, annotations=annotations, structured_output=False)

    def find_episodes(
        self, context: Call, filters: FilterMap, sort: Sort = "", limit: Limit = 20, after: After = ""
    ) -> str:
        """Find episodes, attempts of an agent at a task, with outcome, reward, tokens and failure; the newest first."""
        return self._list(context, "episodes", filters, sort, limit, after)

    def find_steps(
        self, context: Call, filters: FilterMap, sort: Sort = "", limit: Limit = 20, after: After = ""
    ) -> str:
        """Find steps (single model calls of agents) without their messages, the newest first."""
        return self._list(context, "steps", filters, sort, limit, after)

    def find_failures(
        self, context: Call, filters: FilterMap, sort: Sort = "", limit: Limit = 20, after: After = ""
    ) -> str:
        """Find failures with class, fault owner, tool and message, the newest first."""
        return self._list(context, "failures", filters, sort, limit, after)

    def find_traces(
        self, context: Call, filters: FilterMap, sort: Sort = "", limit: Limit = 20, after: After = ""
    ) -> str:
        """Find traces, also those that are not converted to episodes yet, the newest first."""
        return self._list(context, "traces", filters, sort, limit, after)

    def count(self, context: Call, of: Literal["episodes", "steps", "failures", "traces"], filters: FilterMap) -> str:
        """Count the episodes, steps, failures or traces that match."""
        return self._answer(context, "count", lambda client: f"{client.count(of, filters)} {of} match.")

    def read_episode(
        self,
        context: Call,
        episode_id: str,
        first_step: Annotated[int, Field(ge=0, description="The step to begin with.")] = 0,
    ) -> str:
        """Read one episode: its outcome, failures and reward, and the messages, tool calls and results of its steps."""
        return self._answer(context, "read_episode", lambda client: self._episode(client, episode_id, first_step))

    def failure_groups(self, context: Call, filters: FilterMap, limit: Limit = 20) -> str:
        """Group equal failures by fingerprint, the most frequent first, with class, owner and the newest message."""
        return self._table(context, "failure_groups", lambda client: client.failure_groups(filters), limit)

    def failing_tools(self, context: Call, filters: FilterMap, limit: Limit = 20) -> str:
        """List tools with their calls and failures, those that fail most first."""
        return self._table(context, "failing_tools", lambda client: client.tools(filters), limit)

    def success_by(
        self,
        context: Call,
        filters: FilterMap,
        by: Annotated[Grouping, Field(description="policy: by version of the model.")] = "policy",
        limit: Limit = 50,
    ) -> str:
        """Compare versions, agents, services, models, tasks or sessions: success and reward with 95 % intervals."""
        return self._table(context, "success_by", lambda client: client.outcomes(by, filters), limit)

    def find_scores(
        self,
        context: Call,
        filters: FilterMap,
        names: Annotated[list[str], Field(default_factory=list, description="Names of scores; none means all.")],
        episode_id: Annotated[str, Field(description="Only the scores of this episode.")] = "",
        limit: Limit = 20,
    ) -> str:
        """Find scores and comments that apps, graders and people gave, the newest first."""

        def fetch(client: Client) -> pl.DataFrame:
            most = min(limit, self._limits.rows)
            return client.scores(filters, names=names, episode_id=episode_id, limit=most + 1)

        return self._table(context, "find_scores", fetch, limit)

    def score_summary(self, context: Call, filters: FilterMap, limit: Limit = 50) -> str:
        """Summarise scores by name: number, mean, lowest and highest value."""
        return self._table(context, "score_summary", lambda client: client.score_summary(filters), limit)

    def filter_values(
        self,
        context: Call,
        field: Annotated[str, Field(description="agent, service, policy, model, task, tool, class, mark, session, …")],
        filters: FilterMap,
        limit: Limit = 50,
    ) -> str:
        """List the values of a filter with their counts, such as the agents or tools that there are."""
        return self._table(context, "filter_values", lambda client: client.values(field, filters), limit)

    def data_sets(self, context: Call, limit: Limit = 20) -> str:
        """List the versions of the data sets that people collected, the newest first, with their counts of episodes."""
        return self._table(context, "data_sets", Client.data_sets, limit)

    def data_set_episodes(
        self,
        context: Call,
        data_set: Annotated[str, Field(description="name@v2, or name for the newest version.")],
        limit: Limit = 20,
    ) -> str:
        """List the episodes of a data set as they were when they were added."""
        return self._table(context, "data_set_episodes", lambda client: client.data_set_episodes(data_set), limit)

    def training_data(self, context: Call, limit: Limit = 20) -> str:
        """List what jobs trained on, the newest first, with their counts of rows and rejections."""
        return self._table(context, "training_data", Client.training_data, limit)

    def _answer(self, context: Call, tool: str, ask: Callable[[Client], str]) -> str:
        start_s = time.perf_counter()
        result = "error"
        try:
            with self._running:
                text = ask(self._clients.of(_services(context)))
            result = "ok"
        except SpanloopError as error:
            raise ToolError(str(error)) from error
        finally:
            self._metrics.count("questions_total", tool=tool, result=result)
            self._metrics.observe("question_seconds", time.perf_counter() - start_s)
        return text

    def _list(  # noqa: PLR0917 - the parameters of a tool
        self, context: Call, of: ListName, filters: FilterMap, sort: str, limit: int, after: str
    ) -> str:
        def ask(client: Client) -> str:
            stated = {**filters, "after": decode_place(after)} if after else filters
            page = client.page(of, stated, sort=sort, rows=min(limit, self._limits.rows))
            return self._page_text(of, page)

        return self._answer(context, f"find_{of}", ask)

    def _page_text(self, of: ListName, page: ListPage) -> str:
        rows = page.rows.drop("sort_value", "sort_id")
        lines = fit((row_line(row, self._limits) for row in rows.iter_rows(named=True)), self._limits).lines
        about = "about " if page.is_estimate else ""
        statement = f"{len(lines)} of {about}{page.total} {of} that match."
        if page.words is not None and (page.words.is_common or page.words.is_partial):
            statement += " Only the newest episodes of the range of time were searched."
        has_more = len(lines) < rows.height or page.has_later
        go_on = (
            f"More follow: ask again with after={encode_place(page.cursor(len(lines) - 1))}."
            if lines and has_more
            else ""
        )
        return reply(statement, lines, go_on=go_on)

    def _table(self, context: Call, tool: str, fetch: Callable[[Client], pl.DataFrame], limit: int) -> str:
        def ask(client: Client) -> str:
            frame = fetch(client)
            rows = frame.head(min(limit, self._limits.rows))
            lines = fit((row_line(row, self._limits) for row in rows.iter_rows(named=True)), self._limits).lines
            is_complete = len(lines) == frame.height
            go_on = "" if is_complete else "More rows exist: raise limit, or narrow the filters."
            return reply(f"{len(lines)} rows{'' if is_complete else ', and more exist'}.", lines, go_on=go_on)

        return self._answer(context, tool, ask)

    def _episode(self, client: Client, episode_id: str, first_step: int) -> str:
        episode = client.episode(episode_id)
        if episode is None:
            return f"There is no episode {episode_id!r}. find_episodes lists some."
        last_step = min(episode.step_count - 1, first_step + _STEPS - 1)
        head = [episode_line(episode, self._limits)]
        if not first_step:
            failures = client.episode_failures(episode_id)
            head += [f"failure: {row_line(row, self._limits)}" for row in failures.iter_rows(named=True)]
        messages = client.messages(episode_id, first_step=first_step, last_step=last_step)
        steps = list(step_texts(messages, self._limits))
        lines, is_cut = fit([*head, *(text for _, text in steps)], self._limits)
        shown = [number for number, _ in steps][: max(0, len(lines) - len(head))]
        next_step = shown[-1] + 1 if shown else first_step + (1 if is_cut else 0)
        statement = f"Episode {episode_id} with {episode.step_count} steps; {_range(shown)}."
        go_on = f"Steps from {next_step} on follow: ask again with first_step={next_step}."
        return reply(statement, lines, go_on=go_on if next_step < episode.step_count else "")


def _range(steps: Sequence[int]) -> str:
    if not steps:
        return "none of its steps is in this reply"
    return f"this reply has steps {steps[0]} to {steps[-1]}"


def _services(context: Call) -> tuple[str, ...]:
    """Return the services that the request's key may see; none means all that the process may see."""
    request = context.request_context.request
    key = None if request is None else request.scope.get(KEY)
    return () if key is None else key.services

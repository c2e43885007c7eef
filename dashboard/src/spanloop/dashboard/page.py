"""Pages of the dashboard: built in, or from a package by an entry point of the group ``spanloop.pages``.

Invariant: a page draws itself and nothing else. What it raises is shown in its place; the navigation and every other
page stay.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

import polars as pl

from spanloop.dashboard import resources
from spanloop.dashboard.visits import Visitor
from spanloop.foundation.paths import DataDir
from spanloop.foundation.plugins import Extension, ExtensionPoint, adapt_callable
from spanloop.store import Store
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi


@dataclass(frozen=True)
class PageContext:
    """What a page may read and do; all sessions share the connections."""

    data_dir: DataDir
    visitor: Visitor
    """Who looks at the page; only an operator may change something."""

    def store(self) -> Store:
        """Return the connection to ClickHouse.

        Raises:
            NotRunningError: No ClickHouse is announced.
            StoreError: ClickHouse does not respond.
        """
        return resources.store()

    def query(self, sql: str, **parameters: object) -> pl.DataFrame:
        """Return the result of a query; ``{name:Type}`` in it stands for a parameter.

        Raises:
            NotRunningError: No ClickHouse is announced.
            StoreError: ClickHouse does not respond, or refuses the query.
        """
        return self.store().connection.query(sql, doing="a page's query", parameters=parameters)

    def job_api(self) -> JobApi:
        """Return the API of training jobs and schedules."""
        return resources.job_api()

    def registry(self) -> Registry:
        """Return the model registry."""
        return resources.registry()

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return resources.now()


class Page(Extension):
    """A page with its options, which are the keys of ``[dashboard.pages.NAME]`` in spanloop.toml."""

    title: ClassVar[str] = ""
    """In the navigation; empty makes one of the name."""
    icon: ClassVar[str] = ":material/extension:"
    """An emoji, or ``:material/NAME:`` of Material Symbols."""
    group: ClassVar[str] = ""
    """The menu of the navigation that the page is in; empty for the top level."""

    def show(self, context: PageContext) -> None:
        """Draw the page with Streamlit.

        Raises:
            SpanloopError: Something is missing; it is shown with its next step.
        """
        raise NotImplementedError


def page_of_callable(function: Callable[..., object], what: str) -> type[Page]:
    """Return the class of a callable that draws a page; its attributes ``title``, ``icon`` and ``group`` count."""
    attributes = {name: getattr(function, name) for name in ("title", "icon", "group") if hasattr(function, name)}
    return adapt_callable(function, Page, method="show", arguments=("context",), what=what, attributes=attributes)


PAGE_POINT: Final = ExtensionPoint[Page](
    what="dashboard page",
    group="spanloop.pages",
    base=Page,
    built_in={
        "overview": "spanloop.dashboard.pages.overview:OverviewPage",
        "episodes": "spanloop.dashboard.pages.episodes:EpisodesPage",
        "traces": "spanloop.dashboard.pages.traces:TracesPage",
        "sessions": "spanloop.dashboard.pages.sessions:SessionsPage",
        "failures": "spanloop.dashboard.pages.failures:FailuresPage",
        "numbers": "spanloop.dashboard.pages.numbers:NumbersPage",
        "transitions": "spanloop.dashboard.pages.transitions:TransitionsPage",
        "data_sets": "spanloop.dashboard.pages.data_sets:DataSetsPage",
        "evaluations": "spanloop.dashboard.pages.evaluations:EvaluationsPage",
        "rounds": "spanloop.dashboard.pages.rounds:RoundsPage",
        "jobs": "spanloop.dashboard.pages.jobs:JobsPage",
        "models": "spanloop.dashboard.pages.models:ModelsPage",
        "alerts": "spanloop.dashboard.pages.alerts:AlertsPage",
    },
    adapt=page_of_callable,
)
"""In the order of the navigation; the first one is at the root."""

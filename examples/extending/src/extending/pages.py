"""A page of the dashboard: the tools that take longest."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar, Final

import streamlit as st
from pydantic import Field

from spanloop.dashboard.page import Page, PageContext

SQL: Final = """
SELECT SpanAttributes['gen_ai.tool.name'] AS tool, count() AS calls, round(avg(Duration) / 1e6, 1) AS mean_ms
FROM otel_traces
WHERE tool != ''
GROUP BY tool
ORDER BY mean_ms DESC
LIMIT {most:UInt32}
"""


class SlowTools(Page):
    """The tools that take longest."""

    title: ClassVar[str] = "Slow tools"
    icon: ClassVar[str] = ":material/timer:"
    group: ClassVar[str] = "Acme"

    most: int = Field(default=10, ge=1)
    """Most tools that are shown."""

    def show(self, context: PageContext) -> None:
        """Draw a table of tools."""
        st.title(self.title)
        tools = context.query(SQL, most=self.most)
        if tools.is_empty():
            st.info("No tool has been called yet.")
        else:
            st.dataframe(tools)

"""List the steps of all episodes: one row is one action of a policy, with its reward and why it is not trained on."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar

from spanloop.dashboard.components import filter_bar, record_list, tables
from spanloop.dashboard.components.page_frame import no_span_yet, page
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import lists, previews, sources
from spanloop.store import Store


class TransitionsPage(Page):
    """The list of transitions."""

    title: ClassVar[str] = "Transitions"
    icon: ClassVar[str] = ":material/footprint:"

    def show(self, context: PageContext) -> None:
        """Draw the list."""
        with page(
            "Transitions",
            "One row is one action of a policy: what training sees. A click opens the step down to its tokens. "
            "Press / to search in actions and f to filter.",
        ):
            _list(context.store())


def _list(store: Store) -> None:
    filters = filter_bar.read_filters()
    filter_bar.show(store, filters, page="transitions", search_hint="Words in actions")
    matches, sort = record_list.read_page(store, sources.STEPS, lists.fetch_steps, filters)
    if matches.rows.is_empty():
        if filters.is_empty:
            no_span_yet(store, "No transition yet.")
        else:
            record_list.show_no_match(matches, filters, "transitions", "transition")
        return
    state = record_list.list_state(matches, sources.STEPS, filters, sort, path="transitions", noun="transition")
    actions = previews.fetch_step_previews(store, matches.rows)
    rows = [
        {
            "started": row["started_at"],
            "step": row["step"],
            "action": actions.get((row["episode_id"], row["step"]), ""),
            "tools": ", ".join(row["tool_names"]),
            "reward": row["reward"],
            "failure": tables.tag(
                f"{row['fault_owner']} · {row['error_class']}", tables.TONES.get(row["fault_owner"], "")
            )
            if row["error_class"]
            else "",
            "trainable": "yes" if row["is_trainable"] else row["untrainable_reason"] or "no",
            "finish": row["finish_reason"],
            "policy": row["policy_version"],
            "model": row["model"],
            "task": row["task_id"],
            "tokens": row["tokens"],
            "duration": tables.duration_cell(row["duration_ns"]),
            "episode": row["episode_id"],
        }
        for row in matches.rows.iter_rows(named=True)
    ]
    hrefs = [
        address("episodes", episode=episode_id, view="Transitions", step=f"{step}")
        for episode_id, step in matches.rows.select("episode_id", "step").iter_rows()
    ]
    tables.show_list(rows, _columns(), hrefs, matches.rows["transition_id"].to_list(), state)


def _columns() -> dict[str, Column]:
    return {
        "started": tables.time_column("started", sort="started"),
        "step": Column("step", "number", width=50),
        "action": Column("action", "preview"),
        "tools": Column("tools", width=110, is_hidden=True),
        "reward": Column("reward", "number", width=70, form="+.2f", sort="reward"),
        "failure": Column("failure", "tag", width=170, sort="class"),
        "trainable": Column("trainable", help="Yes, or why it is not trained on", width=96),
        "finish": Column("finish", width=80, is_hidden=True),
        "policy": Column("version", width=96, sort="policy", filter="policy"),
        "model": Column("model", width=110, is_hidden=True),
        "task": Column("task", width=104, sort="task", filter="task"),
        "tokens": Column("tokens", "number", width=64, sort="tokens"),
        "duration": Column("took", "number", width=72, sort="duration"),
        "episode": Column("episode", "id", width=104),
    }

"""The short form: train on episodes that are chosen already, with what the job would do, before it starts."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import Any

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions
from spanloop.dashboard.components.markup import escape_md
from spanloop.foundation.version_names import CHAMPION
from spanloop.training.promotion.aliases import Aliases

from . import form, plan, start_control

Selection = Mapping[str, Any]
"""Values by setting that select the episodes to train on."""


def train_button(selections: Mapping[str, Selection], about: str) -> None:
    """Draw the button that opens the form; a viewer sees none.

    Args:
        selections: The episodes to choose from, each by a few words; the first ones are chosen at the beginning.
        about: What they are, as a sentence.
    """
    if actions.button("Train", icon=":material/model_training:", key="train_on", is_primary=True):
        _show(selections, about)


@st.dialog("Train", width="large", icon=":material/model_training:")
def _show(selections: Mapping[str, Selection], about: str) -> None:
    st.caption(escape_md(about))
    versions = form.registered_versions()
    if not versions:
        return
    kind = form.select_kind()
    base = st.selectbox("Base", versions, index=_default(versions), key="train_base", help="The version to start from")
    chosen = next(iter(selections))
    if len(selections) > 1:
        chosen = st.segmented_control("Episodes", list(selections), default=chosen, key="train_episodes", required=True)
    values = {**selections[chosen], "kind": kind, "base": base}
    start, label = start_control.show()
    spec = form.valid_spec(values)
    if spec is None:
        return
    has_rows = plan.show(spec)
    with st.container(horizontal=True):
        if actions.button(
            label,
            icon=":material/play_arrow:",
            key="start_training",
            is_primary=True,
            is_disabled=not has_rows and start == start_control.Start(),
            hint=None if has_rows else "There is nothing to train on now.",
        ):
            form.start_job(spec, start)
        if actions.button("All settings", icon=":material/tune:", key="all_settings"):
            form.open_with(values)


def _default(versions: list[str]) -> int:
    """Return the position of the champion, of the first model that has one; else of the first version."""
    champions = {each.reference for each in Aliases(resources.data_dir()).list() if each.alias == CHAMPION}
    return next((number for number, version in enumerate(versions) if version in champions), 0)

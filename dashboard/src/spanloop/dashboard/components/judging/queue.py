"""Judge the episodes of a filter one after another.

Invariant: the address states filters, number and seed. The sample is drawn when the queue opens: an episode that a
judgement takes out of the filter stays in the queue of this visit.
"""
# pyright: reportUnknownMemberType=false

from typing import Final

import streamlit as st

from spanloop.dashboard.components import episode_detail, filter_bar
from spanloop.dashboard.components.judging import panel
from spanloop.dashboard.components.judging.panel import Moves
from spanloop.dashboard.components.page_frame import draw_again, link_back
from spanloop.dashboard.queries import episodes
from spanloop.dashboard.queries.queue import fetch_sample
from spanloop.dashboard.view_models.filters import Filters
from spanloop.foundation.errors import ConfigurationError
from spanloop.store import Store
from spanloop.store.judgements import fetch_judgements

DEFAULT_SIZE: Final = 50
_MAX_SIZE: Final = 1_000


def show(store: Store) -> None:
    """Draw the episode of the queue that the address names, else the first one that nobody has judged."""
    filters = filter_bar.read_filters()
    size, seed = _number("queue", DEFAULT_SIZE, _MAX_SIZE), _number("seed", 0, 2**31)
    link_back("episodes", "All episodes")
    ids = _sample(store, filters, size, seed)
    if not ids:
        st.info("No episode matches, so there is nothing to judge.", icon=":material/filter_alt_off:")
        return
    judged = set(fetch_judgements(store, episode_ids=ids)["episode_id"].to_list())
    left = [each for each in ids if each not in judged]
    at = st.query_params.get("at", "")
    if at not in ids and not left:
        st.success(f"All {len(ids)} episodes of the queue are judged.", icon=":material/done_all:")
        return
    current = at if at in ids else left[0]

    def href(episode_id: str) -> str:
        query = filters.query(queue=str(size), seed=str(seed), at=episode_id)
        return f"episodes?{query}" if episode_id else ""

    place = ids.index(current)
    following = _next_left(ids, left, place)
    moves = Moves(
        left=f"{len(left)} of {len(ids)} left",
        skip=href(following),
        previous=href(ids[place - 1] if place else ""),
        next=href(ids[place + 1] if place + 1 < len(ids) else ""),
    )
    episode = episodes.fetch_episode(store, current)
    if episode is None or episode.is_deleted:
        st.warning("This episode now belongs to another one, or is forgotten. Go on with n.", icon=":material/merge:")
        panel.show_moves(moves)
        return
    if panel.show(store, episode, moves=moves):
        st.query_params["at"] = following or "end"
        draw_again()
    episode_detail.show_to_judge(store, episode)


def _next_left(ids: list[str], left: list[str], place: int) -> str:
    """Return the next episode that nobody has judged, going round; empty without one."""
    waiting = {*left} - {ids[place]}
    return next((each for each in (*ids[place + 1 :], *ids[:place]) if each in waiting), "")


def _sample(store: Store, filters: Filters, size: int, seed: int) -> list[str]:
    key = f"queue {filters.query(queue=str(size), seed=str(seed))}"
    if key not in st.session_state:
        st.session_state[key] = fetch_sample(store, filters, size=size, seed=seed)
    sample: list[str] = st.session_state[key]
    return sample


def _number(name: str, default: int, largest: int) -> int:
    text = st.query_params.get(name, "") or str(default)
    if not text.isdecimal() or not (name == "seed" or int(text)) or int(text) > largest:
        raise ConfigurationError(
            f"{name} is {text!r} in the address, expected a number up to {largest:,}.",
            next_step=f"Write {name}={default}.",
        )
    return int(text)

"""The episode list and one episode."""

from datetime import UTC, datetime

import pytest
from streamlit.testing.v1 import AppTest

from spanloop.dashboard.queries import conditions, lists
from spanloop.dashboard.queries.lists import Cursor
from spanloop.dashboard.view_models.filters import Filters, parse_filters
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.models.registry import Registry

from .dashboard_driver import follow, links, open_page, page_links, span_lines, table, text_of
from .dashboard_seeding import INJECTION, Seeded, insert, seed

VIEWS = ("Conversation", "Spans", "Rewards", "Transitions", "Tokens", "Failures")


def test_the_list_shows_the_newest_first_and_no_tombstone(seeded: Seeded) -> None:
    shown = table(open_page("episodes"))
    assert len(shown) == seeded.episodes
    assert list(shown["started"]) == sorted(shown["started"], reverse=True)
    assert seeded.tombstone_id not in set(shown["id"])


def test_filters_come_from_the_address(seeded: Seeded) -> None:
    failed = table(open_page("episodes", outcome="failure", policy="shop-tiny@v1"))
    assert set(failed["outcome"]) == {"failure"}
    assert set(failed["policy"]) == {"shop-tiny@v1"}
    matches = table(open_page("episodes", q="REFUND-17"))
    assert set(matches["task"]) == {"refund-17"}
    errors = table(open_page("episodes", errors="1.."))
    assert set(errors["errors"]) == {1}
    assert 0 < len(errors) < seeded.episodes


def test_a_filter_that_matches_nothing_says_so(seeded: Seeded) -> None:
    assert seeded.episodes
    app = open_page("episodes", q="'; DROP TABLE episodes; --")
    assert "No episode matches" in app.info[0].value


def test_a_row_leads_to_its_episode_and_that_to_the_list(seeded: Seeded) -> None:
    listed = open_page("episodes", q=seeded.failed_id)
    (address,) = links(listed)
    app = follow(address)
    assert app.title[0].value == "Episode"
    assert app.query_params["episode"] == seeded.failed_id
    assert "All episodes" in page_links(app)


@pytest.mark.parametrize("sort", ["", "reward", "-reward", "started", "task", "-class"])
def test_a_list_is_sorted_over_all_rows_and_paged_by_key(
    sort: str, seeded: Seeded, seeded_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(cursor: Cursor | None = None) -> lists.ListPage:
        return lists.fetch_episodes(seeded_store, Filters(), sort, cursor)

    whole = fetch().rows["episode_id"].to_list()
    monkeypatch.setattr(lists, "PAGE_ROWS", 7)
    page, seen = fetch(), list[str]()
    while True:
        assert page.total == seeded.episodes
        seen += page.rows["episode_id"].to_list()
        if not page.has_later:
            break
        page = fetch(Cursor(*page.rows.select("sort_value", "sort_id").row(-1)))
    assert seen == whole
    assert len(set(seen)) == seeded.episodes
    last = fetch(Cursor(is_before=True))
    assert last.rows["episode_id"].to_list() == seen[-7:]
    earlier = fetch(Cursor(*last.rows.select("sort_value", "sort_id").row(0))._replace(is_before=True))
    assert earlier.rows["episode_id"].to_list() == seen[-14:-7]


def test_rows_say_what_was_asked_and_answered(seeded: Seeded) -> None:
    shown = table(open_page("episodes", q=seeded.success_id))
    assert str(shown["input"][0]).startswith("Can I get a refund for order")
    assert str(shown["output"][0]).startswith("Yes: the order arrived")


def test_words_of_messages_and_errors_are_found_and_marked(seeded: Seeded) -> None:
    everything = table(open_page("episodes", q="arrived ORDER"))
    assert 0 < everything.height < seeded.episodes
    assert "\x02order\x03" in str(everything["input"][0]).lower()
    assert table(open_page("episodes", q="warehouse answer"))["input"].str.contains("\x02warehouse\x03").any()
    nothing = open_page("episodes", q="arriv")
    assert "match=part" in text_of(nothing)
    assert (
        table(open_page("episodes", q="arriv", match="part")).height == table(open_page("episodes", q="arrived")).height
    )


def test_what_an_address_says_wrongly_is_named(seeded: Seeded) -> None:
    app = open_page("episodes", outcome="banana", colour="red", time="soon", reward="high", sort="-colour")
    assert table(app).height == seeded.episodes
    shown = "\n".join(str(warning.value) for warning in app.warning)
    for part in ("banana", "colour", "soon", "high", "cannot be sorted by"):
        assert part in shown


@pytest.mark.parametrize(
    ("query", "is_some"),
    [
        ({"agent": "shopkeeper"}, True),
        ({"agent": "nobody"}, False),
        ({"task": "refund-*"}, True),
        ({"tool": "lookup_order"}, True),
        ({"tool": "no_tool"}, False),
        ({"class": "invalid_arguments", "owner": "policy"}, True),
        ({"error": "warehouse"}, True),
        ({"error": "no such words"}, False),
        ({"mark": "good"}, True),
        ({"model": "shop-tiny"}, True),
        ({"attr": "error.type=TimeoutError"}, True),
        ({"attr": "error.type=NoError"}, False),
        ({"reward": "0.95..", "tokens": "..100000", "duration": "1.."}, True),
        ({"time": "2020-01-01T00:00Z..2020-01-02T00:00Z"}, False),
        ({"user": "nobody"}, False),
    ],
)
@pytest.mark.parametrize("page", ["episodes", "traces", "transitions", "failures"])
def test_every_filter_narrows_every_list(page: str, query: dict[str, str], is_some: bool, seeded_store: Store) -> None:  # noqa: FBT001
    fetch = {
        "episodes": lists.fetch_episodes,
        "traces": lists.fetch_traces,
        "transitions": lists.fetch_steps,
        "failures": lists.fetch_failures,
    }[page]
    filters = parse_filters({name: [value] for name, value in query.items()}, now=datetime.now(UTC), zone="UTC")
    everything = fetch(seeded_store, Filters(), "", None)
    matches = fetch(seeded_store, filters, "", None)
    assert not filters.problems
    if (page, *query) in {("failures", "reward", "tokens", "duration"), ("traces", "model")}:
        return  # no row of the seeded store has it
    assert (matches.total > 0) == is_some
    assert matches.total < everything.total or is_some


@pytest.mark.parametrize("page", ["episodes", "traces", "transitions", "failures"])
def test_a_filter_on_an_attribute_reads_the_newest_traces_and_says_so(
    page: str, seeded: Seeded, seeded_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_page(page, attr="error.type=TimeoutError")
    assert not app.exception
    assert "the spans of the newest 5,000 traces of the range of time are read" in text_of(app)
    assert "have no index" not in text_of(open_page(page, task="refund-*"))
    monkeypatch.setattr(conditions, "ATTRIBUTE_TRACES", 1)
    newest = lists.fetch_traces(seeded_store, Filters(values={"attr": ("error.type=TimeoutError",)}), "", None)
    everything = lists.fetch_traces(seeded_store, Filters(), "", None)
    assert newest.total < everything.total
    assert set(newest.rows["trace_id"]) <= set(everything.rows["trace_id"].head(5))
    assert seeded.episodes


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_an_episode_draws(view: str, seeded: Seeded) -> None:
    for episode_id in (seeded.failed_id, seeded.success_id):
        app = open_page("episodes", episode=episode_id, view=view)
        assert not app.exception
        assert not app.error


def test_the_marks_of_an_episode_are_shown(seeded: Seeded) -> None:
    assert "marks **good** · **re\\*viewed**" in text_of(open_page("episodes", episode=seeded.success_id))
    assert "marks **" not in text_of(open_page("episodes", episode=seeded.failed_id))


def test_the_conversation_marks_the_failed_tool_call(seeded: Seeded) -> None:
    shown = text_of(open_page("episodes", episode=seeded.failed_id))
    assert "failed · TimeoutError" in shown
    assert "the warehouse did not answer" in shown
    assert "step 1" in shown


def test_messages_are_shown_and_not_obeyed(seeded: Seeded) -> None:
    shown = text_of(open_page("episodes", episode=seeded.failed_id))
    assert INJECTION not in shown
    assert "&lt;img src=x" in shown


def test_the_span_tree_has_every_span_and_the_error(seeded: Seeded) -> None:
    lines = span_lines(open_page("episodes", episode=seeded.failed_id, view="Spans"))
    assert len(lines["id"]) == 5
    assert any(error.startswith("TimeoutError") for error in lines["error"])


def test_a_span_beside_the_tree_shows_its_messages_attributes_and_scores(seeded: Seeded) -> None:
    def panel(number: int, **view: str) -> AppTest:
        span = span_lines(open_page("episodes", episode=seeded.failed_id, view="Spans"))["id"][number]
        app = open_page("episodes", episode=seeded.failed_id, view="Spans", span=span, **view)
        assert not app.exception
        return app

    attributes = table(panel(2, part="Attributes"))
    assert dict(zip(attributes["name"], attributes["value"], strict=True))["error.type"] == "TimeoutError"
    assert "Event: exception" in text_of(panel(2, part="Attributes"))
    assert "gen_ai.input.messages" in text_of(panel(1, part="Request"))
    assert "No message, argument or result is recorded" in text_of(panel(0))
    assert "Step 1, down to its tokens" in [heading.value for heading in panel(4, part="Tokens").subheader]
    assert table(panel(0, part="Scores"))["of"].to_list() == ["this span"]
    assert "No score names this span" in text_of(panel(4, part="Scores"))


def test_transitions_say_whether_and_why_not(seeded: Seeded, seeded_store: Store) -> None:
    blocked = seeded_store.query(
        "dashboard_latest_failures", since_s=0, fingerprint="environment-rate_limited-lookup_order", max_rows=1
    )["episode_id"][0]
    shown = table(open_page("episodes", episode=blocked, view="Transitions"))
    assert set(shown["is_trainable"]) == {"no"}
    assert set(shown["why_not"]) == {"environment_fault: the tool's service refused the call"}
    fine = table(open_page("episodes", episode=seeded.success_id, view="Transitions"))
    assert set(fine["is_trainable"]) == {"yes"}


def test_rewards_are_broken_down(seeded: Seeded) -> None:
    app = open_page("episodes", episode=seeded.failed_id, view="Rewards")
    parts = table(app)
    assert dict(zip(parts["component"], parts["value"], strict=True)) == {"reward": -0.5, "tool_error": -0.1}


def test_tokens_show_mask_and_logprobs(seeded: Seeded) -> None:
    app = open_page("episodes", episode=seeded.success_id, view="Tokens")
    shown = table(app, 1)
    assert len(shown) == 72
    assert shown["in_loss"].to_list().count("True") == 24
    assert shown["logprob"].is_not_null().sum() == 24
    assert table(app)["trained_tokens"][0] == 24


@pytest.mark.usefixtures("environment")
def test_arrays_that_are_not_parallel_are_an_error(store: Store) -> None:
    seeded = seed(store, per_version=2)
    head = store.query("dashboard_episode", episode_id=seeded.success_id)
    insert(
        store,
        "trajectories",
        [
            {
                "trajectory_id": f"{seeded.success_id}/1",
                "episode_id": seeded.success_id,
                "revision": head["revision"][0],
                "row_number": 1,
                "prompt_token_ids": [1],
                "response_token_ids": [1, 2, 3],
                "loss_mask": [1],
                "logprobs": [-1.0, -1.0, -1.0],
            }
        ],
    )
    app = open_page("episodes", episode=seeded.success_id, view="Tokens")
    app.selectbox(key="row").set_value(1).run()
    assert "not parallel" in app.error[0].value


def test_an_unknown_episode_and_a_merged_one_say_so(seeded: Seeded) -> None:
    assert "has no episode 'nope'" in open_page("episodes", episode="nope").info[0].value
    assert "belong to another one" in open_page("episodes", episode=seeded.tombstone_id).warning[0].value


def test_tokens_are_decoded_with_the_versions_own_tokenizer(seeded: Seeded, seeded_environment: DataDir) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{number}": number for number in range(512)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    version = Registry(seeded_environment).get("shop-tiny@v1")
    tokenizer.save(str(version.path / "tokenizer.json"))
    app = open_page("episodes", episode=seeded.success_id, view="Tokens")
    assert list(table(app, 1)["text"][:2]) == ["w100", "w101"]
    assert ">w17</span>" in text_of(app)

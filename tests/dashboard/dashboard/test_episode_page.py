"""The episode list and one episode."""

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.models.registry import Registry

from .dashboard_driver import button, click_row, open_page, table, text_of
from .dashboard_seeding import INJECTION, Seeded, insert, seed

VIEWS = ("Conversation", "Spans", "Rewards", "Transitions", "Tokens", "Failures")


def test_the_list_shows_the_newest_first_and_no_tombstone(seeded: Seeded) -> None:
    shown = table(open_page("episodes"))
    assert len(shown) == seeded.episodes
    assert list(shown["started_at"]) == sorted(shown["started_at"], reverse=True)
    assert seeded.tombstone_id not in set(shown["episode_id"])


def test_filters_come_from_the_address(seeded: Seeded) -> None:
    failed = table(open_page("episodes", outcome="failure", policy="shop-tiny@v1"))
    assert set(failed["outcome"]) == {"✕ failure"}
    assert set(failed["policy_version"]) == {"shop-tiny@v1"}
    matches = table(open_page("episodes", search="REFUND"))
    assert set(matches["task_id"]) == {"refund-17"}
    errors = table(open_page("episodes", errors="true"))
    assert set(errors["tool_errors"]) == {"1 / 1"}
    assert 0 < len(errors) < seeded.episodes


def test_a_filter_that_matches_nothing_says_so(seeded: Seeded) -> None:
    assert seeded.episodes
    app = open_page("episodes", search="'; DROP TABLE episodes; --")
    assert "No episode matches" in app.info[0].value


def test_a_row_opens_its_episode_and_the_button_closes_it(seeded: Seeded) -> None:
    app = open_page("episodes", search=seeded.failed_id)
    click_row(app, "episodes", 0)
    assert app.title[0].value == "Episode"
    assert app.query_params["episode"] == seeded.failed_id
    button(app, "All episodes").click().run()
    assert app.title[0].value == "Episodes"


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
    app = open_page("episodes", episode=seeded.failed_id, view="Spans")
    tree = next(element.proto.body for element in app.html if 'role="table"' in element.proto.body)
    assert tree.count('role="row"') == 5
    assert "✕ TimeoutError" in tree


def test_one_span_shows_its_attributes(seeded: Seeded) -> None:
    app = open_page("episodes", episode=seeded.failed_id, view="Spans")
    chooser = next(box for box in app.selectbox if box.label == "All fields of one span")
    chooser.set_value(2).run()
    attributes = table(app)
    assert dict(zip(attributes["name"], attributes["value"], strict=True))["error.type"] == "TimeoutError"
    assert any("exception" in str(element.value) for element in app.markdown)


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
    assert shown["in_loss"].sum() == 24
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

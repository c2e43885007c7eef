"""Every view of a model that learned: demo@v1, by sft demo@v2, by grpo demo@v3."""

import json
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from spanloop.dashboard.components.evaluation_figures import number_form, range_of_difference
from spanloop.evaluation.results import Interval
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Promotion
from spanloop.store import connect
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.promote import Actions, promote
from spanloop.training.run.job_api import JobApi

from .dashboard_driver import PAGES, follow, links, open_page, table, tables, text_of
from .dashboard_learning import LEARNED, TEST_TASKS, Learned


def charts(app: AppTest) -> list[dict[str, Any]]:
    """The specifications of the page's charts, with what each draws under ``rows``."""
    return [json.loads(element.proto.spec) for element in app.get("vega_lite_chart")]


def facts_of(app: AppTest) -> dict[str, str]:
    drawn = [table(app, number) for number in range(len(tables(app)))]
    (facts,) = (each for each in drawn if each.columns == ["what", "value"])
    return dict(facts.iter_rows())


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


@pytest.mark.usefixtures("learned")
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_page_draws(page: str) -> None:
    app = open_page(page)
    assert not app.exception
    assert not app.error


@pytest.mark.usefixtures("learned")
def test_failures_fall_from_version_to_version() -> None:
    app = open_page("failures", task="test-*")
    trends = {row["cells"]["class"]: row["cells"]["trend"]["bars"] for row in tables(app)[0]["rows"]}
    assert trends["wrong_answer"] == pytest.approx([10 / 40, 6 / 40, 5 / 40])
    assert all(before > after for before, _, after in trends.values())
    app.session_state["failures_view"] = "From version to version"
    app.run()
    assert len(charts(app)) == 3
    assert not tables(app)
    assert "demo@v1: 40 · demo@v2: 40 · demo@v3: 40" in text_of(app)


@pytest.mark.usefixtures("learned")
def test_a_failure_group_has_its_own_shares() -> None:
    app = open_page("failures", group="policy-wrong_answer")
    assert len(charts(app)) == 1
    assert "**wrong\\_answer**" in text_of(app)


@pytest.mark.usefixtures("learned")
def test_failures_of_a_task_set_only() -> None:
    total = table(open_page("failures"))["failures"].sum()
    parts = [table(open_page("failures", task=prefix))["failures"].sum() for prefix in ("test-*", "train-*")]
    assert total == sum(parts)
    assert min(parts) > 0


@pytest.mark.usefixtures("learned")
def test_rewards_rise_by_stage_and_by_component() -> None:
    app = open_page("evaluations", view="Rewards", tasks="test-")
    shown = table(app)
    assert shown["policy_version"].to_list() == list(LEARNED)
    assert shown["success"].to_list() == [30.0, 60.0, 82.5]
    assert shown["reward"].is_sorted()
    text = text_of(app)
    assert "**answer**" in text
    assert "**tool\\_use**" in text
    assert "95 % interval" in text


def test_a_link_to_a_jobs_curves_shows_them_first(learned: Learned, learned_environment: DataDir) -> None:
    assert learned.failed_id
    grpo = JobApi(learned_environment).list()[0]
    app = open_page("evaluations", job=grpo.id)
    assert app.multiselect[0].value == [grpo.id]
    shown = metrics(app)
    assert (shown["Success before"], shown["Success after"]) == ("60.0 %", "82.5 %")


def test_curves_of_two_jobs_lie_over_each_other_smoothed_and_zoomed(
    learned: Learned, learned_environment: DataDir
) -> None:
    assert learned.failed_id
    jobs = [job.id for job in JobApi(learned_environment).list() if job.model_version]
    app = open_page("evaluations", view="Training", job=jobs[0])
    app.multiselect(key="curve_jobs").set_value(jobs).run()
    app.slider(key="smooth").set_value(0.8).run()
    assert not app.exception
    assert app.query_params["job"] == jobs
    first, last = app.slider(key="steps").value
    app.slider(key="steps").set_range(first + 2, last).run()
    assert not app.exception
    chart = json.loads(app.get("vega_lite_chart")[0].proto.spec)
    assert {layer["encoding"]["y"]["field"] for layer in chart["layer"]} == {"value", "smoothed"}


@pytest.mark.usefixtures("learned")
def test_evaluations_show_success_with_intervals_and_the_paired_difference() -> None:
    app = open_page("evaluations")
    shown = table(app)
    assert shown["policy"].to_list() == list(LEARNED)
    assert shown["success"].to_list() == ["30.0 %", "60.0 %", "82.5 %"]
    assert shown["tasks"].to_list() == [TEST_TASKS] * 3
    assert metrics(app)["Success, after less before"] == "+52.5 points"
    assert metrics(app)["Failed before, succeed now"] == "21"
    figures = table(app, 1)
    changes = dict(zip(figures["figure"], figures["difference"], strict=True))
    assert changes["with invalid_arguments"] == pytest.approx(-0.275)
    assert changes["crashed or ran out of time"] == 0
    errors = table(app, 2)
    assert dict(zip(errors["class"], errors["change"], strict=True))["invalid_arguments"] == pytest.approx(-27.5)
    assert table(app, 3)["tool"].to_list() == ["lookup"]


@pytest.mark.usefixtures("learned")
def test_the_evaluations_compared_can_be_chosen() -> None:
    app = open_page("evaluations", before="demo@v2", after="demo@v3")
    assert metrics(app)["Success, after less before"] == "+22.5 points"
    app.selectbox(key="before").set_value("demo@v3").run()
    assert "two different versions" in app.info[0].value


def test_a_task_that_improved_is_shown_side_by_side(learned: Learned) -> None:
    app = open_page("evaluations", view="Task by task", tasks="test-")
    assert metrics(app)["Better"] == "21"
    assert metrics(app)["Worse"] == "0"
    assert table(app)["task_id"][0] == learned.improved_task
    text = text_of(app)
    assert f"Task {learned.improved_task}" in text
    assert "Before: demo@v1" in text
    assert "After: demo@v3" in text
    assert "They cost 41." in text
    assert "They cost 42." in text
    assert "the answer is 41, expected 42" in text
    parts = table(app, 1)
    assert parts["component"].to_list() == ["answer", "tool_use", "the episode's reward"]
    assert parts["difference"].to_list() == pytest.approx([0.7, 0.0, 0.7])


@pytest.mark.usefixtures("learned")
def test_tasks_of_the_training_are_counted_beside_the_comparison() -> None:
    text = text_of(open_page("evaluations", view="Task by task"))
    assert "demo@v3 was trained on 10 of these 50 tasks" in text
    assert "demo@v1 was trained" not in text
    assert "was trained on" not in text_of(open_page("evaluations", view="Task by task", tasks="test-"))


@pytest.mark.parametrize(("tasks", "text"), [(2, "+0.5 to +0.5: may be chance"), (6, "+0.5 to +0.5")])
def test_a_difference_over_few_tasks_may_be_chance(tasks: int, text: str) -> None:
    assert range_of_difference(Interval(0.5, 0.5, 0.5), "+.1f", tasks=tasks) == text


def test_another_task_is_picked_by_a_row_and_by_the_url(learned: Learned) -> None:
    app = open_page("evaluations", view="Task by task", tasks="test-")
    second = table(app)["task_id"][1]
    assert second != learned.improved_task
    app = follow(links(app)[1])
    assert app.query_params["task"] == second
    assert f"Task {second}" in text_of(app)
    solved = open_page("evaluations", view="Task by task", tasks="test-", task="test-sum-002")
    assert solved.button_group(key="change").value == "Solved by both"


@pytest.mark.usefixtures("learned")
def test_the_same_version_twice_is_no_comparison() -> None:
    app = open_page("evaluations", view="Task by task", before="demo@v2", after="demo@v2")
    assert "two different versions" in app.info[0].value


@pytest.mark.usefixtures("learned")
def test_versions_without_a_common_task_say_so() -> None:
    app = open_page("evaluations", view="Task by task", before="demo@v1", after="demo@v3")
    app.selectbox(key="tasks").set_value("train-").run()
    assert not app.info
    assert metrics(app)["Tasks of both"] == "10"


def test_a_transition_goes_down_to_its_tokens(learned: Learned, learned_environment: DataDir) -> None:
    sft = JobApi(learned_environment).list()[-1]
    app = open_page("episodes", episode=learned.trained_id, view="Transitions")
    app = follow(links(app)[1])
    assert app.query_params["step"] == "1"
    text = text_of(app)
    assert "Step 1, down to its tokens" in text
    assert "temperature 1.0" in text
    assert "In token row 0 (steps 0 to 1); it is trainable." in text
    assert "The first 100 prompt tokens are not shown." in text
    tokens = table(app, 1)
    assert tokens["part"].to_list() == ["prompt"] * 200 + ["sampled"] * 12
    assert tokens["logprob"].drop_nulls().to_list() == pytest.approx([-0.3 * (index % 5) for index in range(12)])
    assert f"Trained on by SFT {sft.spec.base} → demo@v2" in [link.proto.label for link in app.get("page_link")]
    app.toggle(key="whole_prompt").set_value(True).run()
    assert table(app, 1)["part"].to_list().count("prompt") == 300


def test_an_episode_that_no_job_used_says_so(learned: Learned) -> None:
    app = open_page("episodes", episode=learned.failed_id, view="Tokens")
    assert "No job has trained on this episode." in text_of(app)
    assert "not in the model registry" not in text_of(app)
    assert "has no tokenizer.json" in text_of(app)


def test_a_step_that_does_not_exist_says_so(learned: Learned) -> None:
    app = open_page("episodes", episode=learned.failed_id, view="Transitions", step="7")
    assert "no step 7" in app.info[0].value


def test_tokens_show_text_and_ids(learned: Learned, learned_environment: DataDir) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": n for n in range(512)}, unk_token="w0"))
    tokenizer.save(str(Registry(learned_environment).get("demo@v1").path / "tokenizer.json"))
    app = open_page("episodes", episode=learned.failed_id, view="Transitions", step="0")
    assert ">w10</span>" in text_of(app)
    app.button_group(key="tokens_shown").set_value("Text and ids").run()
    assert ">w10<span" in text_of(app)
    assert "> 10</span>" in text_of(app)


@pytest.mark.usefixtures("learned")
def test_the_lineage_is_a_graph_with_jobs_and_results() -> None:
    app = open_page("models", model="demo@v3")
    (drawn,) = app.get("graphviz_chart")
    dot = drawn.proto.spec
    assert '"demo@v1" -> "demo@v2" [label="SFT, 20 steps\\n20 episodes"' in dot
    assert "test: 82.5 % success (" in dot
    assert "60 episodes, mean reward 0.863" in dot
    facts = facts_of(app)
    assert facts["learned from"] == "20 episodes, 20 token rows in 10 groups"
    assert facts["groups left out"] == "4 rewards_alike"
    assert facts["how"] == "GRPO, 18 steps of 8 groups, learning rate 1.0e-06"
    assert facts["ended_early"] == "kl_budget ended it at step 18"
    assert "ended_early" not in facts_of(open_page("models", model="demo@v2"))
    assert metrics(app)["Evaluation test"] == "82.5 %"


@pytest.mark.usefixtures("learned")
def test_a_version_lists_the_model_calls_that_trained_it_and_its_ancestors() -> None:
    app = open_page("models", model="demo@v3")
    assert "**What trained it**" in text_of(app)
    shown = table(app, len(tables(app)) - 1)
    assert sorted(shown["version"].to_list()) == ["demo@v2"] * 2 + ["demo@v3"] * 2
    assert shown["step"].to_list() == [0] * 4
    assert all(row["cells"]["trace"]["href"].startswith("traces?trace=") for row in tables(app)[-1]["rows"])
    assert "4 of 4 model calls" in text_of(app)


def test_a_version_shows_its_aliases_and_each_decision_with_its_evidence(learned_environment: DataDir) -> None:
    Aliases(learned_environment).set("demo@v1", "champion")
    actions = Actions(learned_environment, deploys=False)
    with connect(learned_environment) as store:
        promote(store, "demo@v2", Promotion(min_tasks=200), actions)
        promote(store, "demo@v3", Promotion(), actions)
    app = open_page("models", model="demo@champion")
    assert dict(table(app).select("version", "aliases").iter_rows())["\u2003└ demo@v3"] == "champion"
    assert "▲ promoted" in app.expander[0].label
    assert "against demo@v1" in app.expander[0].label
    assert "The candidate is better: success differs by +0.525 on 40 tasks." in text_of(app)
    assert "**The champion of demo**" in text_of(app)
    assert len(charts(app)) == 1
    shown = metrics(app)
    assert shown["Success, demo@v3"] == "0.825"
    assert shown["Difference"] == "+0.525"
    guards = next(frame for frame in map(table, [app] * 6, range(6)) if "guard" in frame.columns)
    assert guards.rows() == [("crashed or ran out of time: at most 0.25", 0.0, 0.0, "yes")]
    undecided = open_page("models", model="demo@v2")
    assert "◆ undecided" in undecided.expander[0].label
    assert "candidate" in table(undecided)["aliases"].to_list()


def test_the_graph_does_not_need_clickhouse(learned_environment: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    assert learned_environment.control_db.exists()
    monkeypatch.delenv("SPANLOOP_CLICKHOUSE_URL")
    app = open_page("models")
    assert not app.exception
    assert not app.error
    assert "SFT, 20 steps" in app.get("graphviz_chart")[0].proto.spec


def test_a_job_says_what_it_learned_from(learned: Learned, learned_environment: DataDir) -> None:
    assert learned.trained_id
    sft = JobApi(learned_environment).list()[-1]
    app = open_page("jobs", job=sft.id)
    assert "**What it learned from**" in text_of(app)
    assert dict(table(app).iter_rows())["rows left out"] == "3 too_long"


def test_a_damaged_dataset_leaves_the_page_whole(learned: Learned, learned_environment: DataDir) -> None:
    sft = JobApi(learned_environment).list()[-1]
    (learned_environment.jobs / sft.id / "dataset.parquet").write_bytes(b"other bytes")
    app = open_page("jobs", job=sft.id)
    assert not app.exception
    assert "**What it learned from**" not in text_of(app)
    assert not open_page("episodes", episode=learned.trained_id, view="Tokens").exception


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(1600.0, 1480.0, 1710.0), "1,600 [1,480, 1,710]"),
        (Interval(990.0, 980.0, 1001.0), "990 [980, 1,001]"),
        (Interval(11.32, 10.2, 12.4), "11.3 [10.2, 12.4]"),
    ],
)
def test_a_figure_is_written_without_an_exponent(interval: Interval, text: str) -> None:
    assert interval.text(number_form(interval)) == text

"""Every page over a real store: seeded, empty, down."""

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.store import Store

from .dashboard_driver import PAGES, figures, follow, links, open_page, page_links, table, text_of
from .dashboard_seeding import Seeded, insert, seed_metrics, spans


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("page", PAGES)
def test_a_seeded_page_draws(page: str) -> None:
    app = open_page(page)
    assert not app.exception
    assert not app.error
    assert app.title[0].value == page.replace("_", " ").capitalize()


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("page", "missing", "command"),
    [
        ("overview", "No span has arrived.", "pip install"),
        ("episodes", "No episode yet. No span has arrived.", "pip install"),
        ("traces", "No trace yet.", "pip install"),
        ("transitions", "No transition yet.", "pip install"),
        ("failures", "No episode yet", "pip install"),
        ("numbers", "No episode yet, so there is nothing to count.", "pip install"),
        ("data_sets", "No data set yet.", "spanloop dataset add"),
        ("evaluations", "No evaluation is stored yet.", "spanloop evaluate"),
        ("jobs", "No job yet.", "spanloop train"),
        ("models", "No model is registered yet.", "spanloop models add"),
    ],
)
def test_an_empty_page_says_what_is_missing_and_the_next_command(page: str, missing: str, command: str) -> None:
    app = open_page(page)
    assert not app.exception
    assert missing in "\n".join(str(info.value) for info in app.info)
    assert any(str(code.value).startswith(command) for code in app.code)


@pytest.mark.parametrize(
    "page",
    [
        *("overview", "episodes", "traces"),
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("failures", "transitions", "evaluations")),
    ],
)
def test_without_clickhouse_a_page_says_so_and_how_to_start_it(page: str, stopped: DataDir) -> None:
    app = open_page(page)
    assert not app.exception
    assert "No ClickHouse runs" in app.error[0].value
    assert f"spanloop up --data-dir {stopped.path}" in [str(code.value) for code in app.code]


@pytest.mark.parametrize("page", ["jobs", "models"])
def test_jobs_and_models_do_not_need_clickhouse(page: str, stopped: DataDir) -> None:
    assert stopped.running("clickhouse") is None
    app = open_page(page)
    assert not app.exception
    assert not app.error


def test_a_clickhouse_that_died_is_a_message_and_not_a_traceback(
    environment: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_CLICKHOUSE_URL", "http://nobody:x@127.0.0.1:9/none")
    app = open_page("overview")
    assert not app.exception
    assert app.error
    assert any(str(code.value) == f"spanloop status --data-dir {environment.path}" for code in app.code)


def test_spans_that_are_not_converted_yet_ask_for_the_conversion(environment: DataDir, store: Store) -> None:
    insert(store, "otel_traces", spans(300))
    app = open_page("overview")
    assert "300 spans are stored but not converted" in app.info[0].value
    assert str(app.code[0].value) == f"spanloop convert --data-dir {environment.path}"


def test_the_overview_counts_what_is_stored(seeded: Seeded) -> None:
    app = open_page("overview")
    shown = {figure["label"]: figure["value"] for figure in figures(app)}
    assert shown["Episodes"] == str(seeded.episodes)
    assert shown["Success rate"] == f"{100 * seeded.successes / seeded.episodes:.0f} %"
    assert shown["Tokens"] == "54,000"
    assert "300 spans stored" in text_of(app)


def test_figures_of_the_overview_lead_to_their_rows_in_the_same_range(seeded: Seeded) -> None:
    app = open_page("overview")
    hrefs = {figure["label"]: figure["href"] for figure in figures(app)}
    assert hrefs["Success rate"] == "episodes?outcome=failure"
    failed = follow(hrefs["Success rate"])
    assert set(table(failed)["outcome"]) == {"failure"}
    assert seeded.episodes
    app.button_group(key="range").set_value("30 d").run()
    assert {figure["label"]: figure["href"] for figure in figures(app)}["Episodes"] == "episodes?time=30d"


@pytest.mark.usefixtures("seeded")
def test_a_time_range_without_episodes_says_so() -> None:
    app = open_page("overview")
    app.button_group(key="range").set_value("1 h").run()
    assert "No episode started in this time range." in app.info[0].value


def test_a_row_of_the_overview_leads_to_the_episode(seeded: Seeded) -> None:
    app = follow(links(open_page("overview"))[0])
    assert app.title[0].value == "Episode"
    assert app.query_params["episode"]
    assert seeded.failed_id


def test_stopped_services_are_named_with_the_command(seeded: Seeded, seeded_environment: DataDir) -> None:
    assert seeded.episodes
    with seeded_environment.announce("gateway", "http://127.0.0.1:1"):
        app = open_page("overview")
    shown = text_of(app)
    assert "Not running: collector (receives spans), scheduler (runs jobs)." in shown
    assert "serving **shop-tiny@v3**" in shown


def test_failures_are_grouped_and_a_group_opens(seeded: Seeded) -> None:
    app = open_page("failures")
    shown = table(app)
    assert list(shown["failures"]) == sorted(shown["failures"], reverse=True)
    assert shown["failures"].sum() == 27
    opened = follow(links(app)[0])
    assert opened.title[0].value == "Failure group"
    assert opened.query_params["group"] == "policy-invalid_arguments-lookup_order"
    assert {metric.label: metric.value for metric in opened.metric}["Failures"] == "12"
    assert seeded.fingerprint


def test_failures_of_one_owner(seeded: Seeded) -> None:
    app = open_page("failures", owner="tool")
    assert set(table(app)["owner"]) == {"tool"}
    assert seeded.episodes


def test_a_failure_group_leads_to_its_episodes_and_back(seeded: Seeded) -> None:
    app = open_page("failures", group=seeded.fingerprint)
    opened = follow(links(app)[0])
    assert opened.title[0].value == "Episode"
    assert opened.query_params["view"] == "Failures"
    assert "All groups" in page_links(app)


@pytest.mark.usefixtures("environment")
def test_a_group_that_is_gone_says_so() -> None:
    app = open_page("failures", group="never")
    assert "No current failure" in app.info[0].value


@pytest.mark.usefixtures("seeded")
def test_rewards_show_curves_and_versions() -> None:
    app = open_page("evaluations", view="Rewards")
    assert len(app.get("vega_lite_chart")) == 2 + 2  # by version, by component
    assert list(table(app)["policy_version"]) == ["shop-tiny@v1", "shop-tiny@v2", "shop-tiny@v3"]
    (curves,) = [select for select in open_page("evaluations", view="Training").multiselect if select.label == "Curves"]
    assert curves.value == ["rollout_corr/k3_kl", "actor/entropy", "actor/pg_loss"]


def test_rewards_of_one_job_by_link(seeded: Seeded, seeded_store: Store) -> None:
    assert seeded.episodes
    seed_metrics(seeded_store, "forgotten-job", steps=3)
    app = open_page("evaluations", view="Training", job="forgotten-job")
    assert app.multiselect[0].value == ["forgotten-job"]

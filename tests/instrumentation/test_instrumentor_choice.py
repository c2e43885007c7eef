"""Each library of an environment gets one instrumentor; what stays off has a reason."""

import os
from importlib.metadata import EntryPoint

import pytest

from spanloop.instrumentation.content_capture import captures_content, switch_content_capture
from spanloop.instrumentation.frameworks import FRAMEWORKS
from spanloop.instrumentation.loading.instrumentor_choice import Choice, choose, describe, module_name
from spanloop.instrumentation.loading.libraries import LIBRARIES, Native, library_of

CONTENT_VARIABLES = (
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
    "OTEL_SEMCONV_STABILITY_OPT_IN",
    "TRACELOOP_TRACE_CONTENT",
    "OPENINFERENCE_HIDE_INPUTS",
    "OPENINFERENCE_HIDE_OUTPUTS",
)


def _offer(module: str, name: str = "") -> EntryPoint:
    return EntryPoint(name or module.rpartition(".")[2], f"{module}:Instrumentor", "opentelemetry_instrumentor")


def _choose(library: str, *modules: str, switched_off: tuple[str, ...] = (), misfits: tuple[str, ...] = ()) -> Choice:
    (choice,) = choose(
        [_offer(module) for module in modules],
        switched_off,
        is_installed=lambda other: other.name == library,
        conflict=lambda offer: "needs llama-index, found nothing of that name" if offer.module in misfits else "",
    )
    return choice


def test_the_best_instrumentor_of_a_library_is_chosen_whatever_its_place() -> None:
    modules = ("openinference.instrumentation.openai", "opentelemetry.instrumentation.openai")
    for order in (modules, modules[::-1]):
        choice = _choose("openai", *order)
        assert choice.by == ("opentelemetry.instrumentation.openai",)
        assert [skip.package for skip in choice.skipped] == ["openinference.instrumentation.openai"]


def test_an_instrumentor_that_does_not_fit_is_named_with_its_reason() -> None:
    module = "openinference.instrumentation.llama_index"
    choice = _choose("llama-index", module, misfits=(module,))
    assert (choice.fitting, choice.by, choice.skipped[0].is_misfit) == ((), ("spanloop",), True)
    assert describe([choice]) == (
        "instrumentors of llama-index: spanloop "
        "(not openinference.instrumentation.llama_index: needs llama-index, found nothing of that name)"
    )


def test_nothing_is_said_where_nothing_stays_off() -> None:
    assert describe([_choose("openai", "opentelemetry.instrumentation.openai")]) == ""
    assert describe([_choose("openai", "opentelemetry.instrumentation.openai", switched_off=("openai",))]) == ""


def test_a_disabled_instrumentor_gives_way_to_the_next() -> None:
    modules = ("opentelemetry.instrumentation.openai", "opentelemetry.instrumentation.openai_v2")
    assert _choose("openai", *modules, switched_off=("openai",)).by == ("opentelemetry.instrumentation.openai_v2",)
    assert _choose("openai", *modules, switched_off=("*",)).by == ()


@pytest.mark.parametrize(
    ("library", "module", "by"),
    [
        ("langchain", "openinference.instrumentation.langchain", ("openinference.instrumentation.langchain",)),
        ("agno", "openinference.instrumentation.agno", ("openinference.instrumentation.agno", "spanloop")),
        ("pydantic-ai", "openinference.instrumentation.pydantic_ai", ("spanloop",)),
    ],
)
def test_a_framework_is_traced_once_where_spanloop_traces_it_too(library: str, module: str, by: tuple[str]) -> None:
    assert _choose(library).by == ("spanloop",)
    assert _choose(library, module).by == by


def test_every_own_module_of_a_framework_is_in_the_table() -> None:
    native = {module_name(library) for library in LIBRARIES if library.native is not Native.NONE}
    assert native == set(FRAMEWORKS)


def test_an_unknown_instrumentor_belongs_to_no_library() -> None:
    assert library_of("opentelemetry.instrumentation.flask") is None
    library = library_of("opentelemetry.instrumentation.openai.v1")
    assert library is not None
    assert library.name == "openai"


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CONTENT_VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("unset")
def test_content_is_switched_on_for_instrumentors_that_leave_it_out() -> None:
    switch_content_capture(["opentelemetry.instrumentation.openai:OpenAIInstrumentor"])
    assert not set(CONTENT_VARIABLES) & set(os.environ)
    switch_content_capture(["opentelemetry.instrumentation.genai.langchain:LangChainInstrumentor"])
    assert os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] == "SPAN_ONLY"
    assert captures_content()


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize(
    ("name", "value"),
    [("TRACELOOP_TRACE_CONTENT", "false"), ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "NO_CONTENT")],
)
def test_one_no_of_the_user_is_a_no_to_every_instrumentor(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    switch_content_capture([])
    assert os.environ["TRACELOOP_TRACE_CONTENT"] == "false"
    assert os.environ["OPENINFERENCE_HIDE_INPUTS"] == os.environ["OPENINFERENCE_HIDE_OUTPUTS"] == "true"
    assert os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] == "NO_CONTENT"
    assert not captures_content()

"""Failures that tools tell of in several languages, in words alone and raised."""

import pytest

from .failure_worlds import TOOL_FAILURES, Kind, raised, told, verdicts

CASES = [(kind, text) for kind in TOOL_FAILURES.values() for text in kind.texts]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_failure_in_words_alone_has_its_owner(number: int) -> None:
    kind, content = CASES[number]
    assert verdicts(told(content)) == [(kind.error_class, kind.owner)], content


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_raised_failure_has_its_owner_in_any_language(number: int) -> None:
    kind, content = CASES[number]
    assert verdicts(raised(content, kind.exception)) == [(kind.error_class, kind.owner)], content


@pytest.mark.parametrize(
    "content",
    [
        "El servicio a bordo incluye bebidas",
        "Der Zug fährt nicht vor zehn Uhr",
        "Keine Flüge gefunden",
        "No se encontraron vuelos",
        "未找到航班",
        "フライトが見つかりませんでした",
        "Le musée est fermé le lundi",
        "巴黎今天晴,21度",
        "La conexión en Lyon dura 45 minutos",
    ],
)
def test_an_answer_in_another_language_is_no_error(content: str) -> None:
    [verdict] = verdicts(told(content, last="21"))
    assert verdict == ("wrong_answer", "policy")


@pytest.mark.parametrize(
    ("attributes", "error_class", "owner"),
    [
        ({"http.response.status_code": "503"}, "server_error", "environment"),
        ({"http.response.status_code": "429"}, "rate_limit", "environment"),
        ({"http.status_code": "504"}, "timeout", "environment"),
        ({"http.response.status_code": "403"}, "permission_denied", "environment"),
        ({"http.response.status_code": "422"}, "invalid_arguments", "policy"),
        ({"rpc.grpc.status_code": "14"}, "server_error", "environment"),
        ({"rpc.grpc.status_code": "4"}, "timeout", "environment"),
        ({"rpc.grpc.status_code": "8"}, "rate_limit", "environment"),
        ({"rpc.grpc.status_code": "16"}, "permission_denied", "environment"),
        ({"error.type": "UNAVAILABLE"}, "server_error", "environment"),
        ({"error.type": "503"}, "server_error", "environment"),
        ({"http.response.status_code": "200"}, "tool_error", "tool"),
    ],
)
def test_a_status_code_shows_the_class_where_words_do_not(
    attributes: dict[str, str], error_class: str, owner: str
) -> None:
    assert verdicts(raised("nope", "", attributes=attributes)) == [(error_class, owner)]


@pytest.mark.parametrize(
    ("content", "error_class", "owner"),
    [
        ('{"type": "about:blank", "title": "x", "status": 503, "detail": "y"}', "server_error", "environment"),
        ('{"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "x"}}', "permission_denied", "environment"),
        ('{"type": "error", "error": {"type": "overloaded_error", "message": "x"}}', "server_error", "environment"),
        (
            '{"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "x"}}',
            "rate_limit",
            "environment",
        ),
        (
            '{"errors": [{"extensions": {"code": "UNAUTHENTICATED"}}]}',
            "permission_denied",
            "environment",
        ),
        ('{"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "x"}}', "invalid_arguments", "policy"),
        ('{"isError": true, "content": [{"type": "text", "text": "délai dépassé"}]}', "timeout", "environment"),
        ('{"error": {"code": 403, "message": "API rate limit exceeded"}}', "rate_limit", "environment"),
    ],
)
def test_an_error_object_shows_the_class(content: str, error_class: str, owner: str) -> None:
    assert verdicts(told(content)) == [(error_class, owner)]


def test_kinds_have_a_text_in_at_least_four_languages() -> None:
    assert all(isinstance(kind, Kind) and len(kind.texts) > 4 for kind in TOOL_FAILURES.values())


@pytest.mark.parametrize(
    "answer",
    [
        "I could not look that up, the weather service is currently unavailable.",
        "Der Wetterdienst ist derzeit leider nicht verfügbar.",
        "Lo siento, el servicio no está disponible en este momento.",
        "Désolé, le délai d'attente du service a été dépassé.",
        "抱歉,天气服务请求超时。",
    ],
)
def test_an_outage_that_only_the_answer_reports_blames_nobody_and_trains_nobody(answer: str) -> None:
    converted = told("{}", last=answer)
    assert [owner for _, owner in verdicts(converted)] in (["unknown"], ["tool"])
    converted = told("see attachment 3", last=answer)
    assert [owner for _, owner in verdicts(converted)] == ["unknown"]
    assert set(converted.transitions["untrainable_reason"]) == {"unattributed_failure"}

"""Failed requests, refused arguments and refusals in several languages."""

import pytest

from .converters_world import OPENING, World
from .failure_worlds import TRACE, told, verdicts

REQUESTS = (
    ("context_overflow", "harness", "La longitud del contexto supera el máximo del modelo"),
    ("context_overflow", "harness", "Der Prompt überschreitet die maximale Kontextlänge"),
    ("context_overflow", "harness", "输入超出模型的最大上下文长度"),
    ("context_overflow", "harness", "La longueur du contexte dépasse la limite du modèle"),
    ("content_filter", "unknown", "Die Anfrage wurde vom Inhaltsfilter blockiert"),
    ("content_filter", "unknown", "内容审核未通过"),
    ("authentication", "harness", "Ungültiger API-Schlüssel"),
    ("authentication", "harness", "Clave de API no válida"),
    ("authentication", "harness", "API 密钥无效"),
    ("rate_limit", "environment", "Ratenlimit erreicht"),
    ("rate_limit", "environment", "请求过多"),
    ("timeout", "environment", "Tiempo de espera agotado"),
    ("server_error", "environment", "内部服务器错误"),
    ("connection_error", "environment", "Verbindung zum Modellserver unterbrochen"),
    ("invalid_request", "harness", "Modell nicht gefunden"),
    ("invalid_request", "harness", "模型不存在"),
    ("cancelled", "user", "Vom Benutzer abgebrochen"),
    ("cancelled", "user", "Annulé par l'utilisateur"),
)
TOOLS = (
    ("cancelled", "user", "Operación cancelada por el usuario"),
    ("cancelled", "user", "操作已被用户取消"),
    ("invalid_arguments", "policy", "Fehler: Pflichtfeld 'query' fehlt"),
    ("invalid_arguments", "policy", "Error: falta el parámetro obligatorio 'query'"),
    ("invalid_arguments", "policy", "错误:缺少必填参数 query"),
    ("invalid_arguments", "policy", "Erreur : paramètre 'query' manquant"),
    ("refused_action", "policy", "Fehler: Guthaben reicht nicht aus"),
    ("refused_action", "policy", "Error: saldo insuficiente"),
    ("refused_action", "policy", "错误:余额不足"),
    ("refused_action", "policy", "Erreur : solde insuffisant"),
)
ANSWERS = (
    ("refusal", "Dabei darf ich nicht helfen."),
    ("refusal", "Lo siento, no puedo ayudar con eso."),
    ("refusal", "抱歉,我无法协助完成此请求。"),
    ("refusal", "Je ne peux pas vous aider avec cette demande."),
    ("refusal", "申し訳ありませんが、お手伝いできません。"),
    ("invented_data", "Ich nehme fiktive Daten an: 21 Grad."),
    ("invented_data", "Usaré datos ficticios: 21 grados."),
    ("invented_data", "我将使用模拟数据:21度。"),
    ("wrong_answer", "Mañana lloverá en París."),
    ("wrong_answer", "Morgen regnet es in Paris."),
)


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_a_failed_request(number: int) -> None:
    error_class, owner, said = REQUESTS[number]
    world = World()
    world.call(OPENING, None, trace=TRACE, error=said)
    assert verdicts(world.convert()) == [(error_class, owner)], said


@pytest.mark.parametrize("number", range(len(TOOLS)))
def test_what_a_tool_says_of_a_call(number: int) -> None:
    error_class, owner, said = TOOLS[number]
    assert verdicts(told(said)) == [(error_class, owner)], said


@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_what_the_policy_answers(number: int) -> None:
    error_class, said = ANSWERS[number]
    assert verdicts(told("21", last=said)) == [(error_class, "policy")], said

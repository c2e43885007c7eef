"""Kinds of failures as programs and services report them in several languages, and worlds in which they happen."""

from typing import NamedTuple

from spanloop.converters import Converted

from .converters_world import OPENING, World, answers, asks, text, trace_id

TRACE = trace_id("t")


class Kind(NamedTuple):
    """A failure of a tool: its class and owner, the exception that it raises, and how it is told."""

    error_class: str
    owner: str
    exception: str
    texts: tuple[str, ...]


TOOL_FAILURES = {
    "timeout": Kind(
        "timeout",
        "environment",
        "httpx.ReadTimeout",
        (
            "The weather provider did not reply in time: read timed out",
            "Zeitüberschreitung bei der Anfrage an den Wetterdienst",
            "Error: se agotó el tiempo de espera al consultar el servicio",
            "Le délai d'attente de la requête a été dépassé",
            "请求超时,请稍后重试",
            "リクエストがタイムアウトしました",
            "O tempo limite da solicitação foi excedido",
            "Превышено время ожидания ответа",
        ),
    ),
    "rate limit": Kind(
        "rate_limit",
        "environment",
        "botocore.errorfactory.ThrottlingException",
        (
            "429: you are sending requests too quickly",
            "Zu viele Anfragen, bitte versuchen Sie es später erneut",
            "Demasiadas solicitudes. Inténtelo de nuevo en un minuto.",
            "Trop de requêtes, réessayez plus tard",
            "请求过于频繁,请稍后再试",
            "リクエストが多すぎます。しばらくお待ちください",
        ),
    ),
    "quota": Kind(
        "rate_limit",
        "environment",
        "google.api_core.exceptions.ResourceExhausted",
        (
            "Error: monthly quota exhausted for this key",
            "Fehler: Das monatliche Kontingent ist aufgebraucht",
            "Error: se ha superado la cuota mensual",
            "Erreur : quota mensuel dépassé",
            "错误:配额已用尽",
            "エラー: 割り当て上限に達しました",
        ),
    ),
    "server error": Kind(
        "server_error",
        "environment",
        "ServiceUnavailableError",
        (
            "Error 503 from the booking backend",
            "Interner Serverfehler",
            "Error interno del servidor",
            "Erreur interne du serveur",
            "服务器内部错误",
            "サーバー内部エラーが発生しました",
            "Fehler 502 vom vorgelagerten Dienst",
        ),
    ),
    "maintenance": Kind(
        "server_error",
        "environment",
        "werkzeug.exceptions.ServiceUnavailable",
        (
            "The service is unavailable: scheduled maintenance until 6:00",
            "Der Dienst ist wegen Wartungsarbeiten vorübergehend nicht verfügbar",
            "El servicio no está disponible por mantenimiento",
            "Le service est temporairement indisponible pour maintenance",
            "系统维护中,服务暂时不可用",
            "メンテナンス中のため、サービスは現在利用できません",
        ),
    ),
    "connection refused": Kind(
        "connection_error",
        "environment",
        "ConnectionRefusedError",
        (
            "Could not reach inventory:8080, connection refused",
            "Die Verbindung zum Server wurde abgelehnt",
            "Error: conexión rechazada por el servidor",
            "Connexion refusée par le serveur distant",
            "无法连接到服务器",
            "サーバーに接続できませんでした",
        ),
    ),
    "name resolution": Kind(
        "connection_error",
        "environment",
        "socket.gaierror",
        (
            "getaddrinfo ENOTFOUND api.weather.example",
            "Fehler: Die Namensauflösung für api.weather.example ist fehlgeschlagen",
            "Error: no se pudo resolver el nombre del host api.weather.example",
            "Erreur : impossible de résoudre le nom d'hôte api.weather.example",
            "域名解析失败: api.weather.example",
            "エラー: ホスト名 api.weather.example の名前解決に失敗しました",
        ),
    ),
    "certificate": Kind(
        "connection_error",
        "environment",
        "ssl.SSLCertVerificationError",
        (
            "TLS handshake failed: certificate has expired",
            "Fehler: Das Zertifikat des Servers ist abgelaufen",
            "Error: el certificado del servidor ha caducado",
            "Erreur : le certificat du serveur a expiré",
            "错误:服务器证书已过期",
            "エラー: サーバー証明書の有効期限が切れています",
        ),
    ),
    "permission": Kind(
        "permission_denied",
        "environment",
        "PermissionError",
        (
            "Error: the service account lacks permission to read this bucket",
            "Zugriff verweigert: dem Dienstkonto fehlt die Berechtigung",
            "Acceso denegado: la cuenta no tiene permisos",
            "Accès refusé : autorisation insuffisante",
            "权限不足,拒绝访问",
            "アクセスが拒否されました。権限がありません",
        ),
    ),
    "expired token": Kind(
        "permission_denied",
        "environment",
        "google.auth.exceptions.RefreshError",
        (
            "401: the access token has expired",
            "Fehler: Das Zugriffstoken ist abgelaufen",
            "Error: el token de acceso ha caducado",
            "Erreur : le jeton d'accès a expiré",
            "错误:访问令牌已过期",
            "エラー: アクセストークンの有効期限が切れています",
        ),
    ),
    "disk": Kind(
        "server_error",
        "environment",
        "OSError",
        (
            "OSError: [Errno 28] No space left on device",
            "Fehler: Auf dem Datenträger ist kein Speicherplatz mehr frei (ENOSPC)",
            "Error: no queda espacio en el disco (ENOSPC)",
            "[Errno 28] Aucun espace disponible sur le périphérique",
            "错误:磁盘空间不足",
        ),
    ),
    "bug": Kind(
        "tool_error",
        "tool",
        "ZeroDivisionError",
        (
            "ZeroDivisionError: division by zero",
            "Unerwarteter Fehler beim Ausführen des Werkzeugs",
            "Ocurrió un error inesperado al ejecutar la herramienta",
            "Une erreur inattendue s'est produite lors de l'exécution de l'outil",
            "工具执行时发生异常",
            "ツールの実行中に予期しないエラーが発生しました",
            'NullPointerException: Cannot invoke "Fare.price()" because "fare" is null',
            "Traceback (most recent call last):\n  File \"tool.py\", line 3, in run\nKeyError: 'precio'",
        ),
    ),
}
"""By what went wrong. The first text of each is English."""


def told(content: str, *, last: str = "Das hat leider nicht geklappt.", reward: float | None = 0.0) -> Converted:
    """A tool's answer that tells of a failure in its text alone, and an episode that failed."""
    world, asked = World(), asks("c1", arguments={"query": "weather in Paris"})
    world.call(OPENING, asked, trace=TRACE)
    world.call([*OPENING, asked, answers("c1", content)], text("assistant", last), trace=TRACE)
    if reward is not None:
        world.score(reward, trace_id=TRACE)
    return world.convert()


def raised(content: str, exception: str, *, attributes: dict[str, str] | None = None) -> Converted:
    """The same, raised in the tool's own span."""
    world, asked = World(), asks("c1", arguments={"query": "weather in Paris"})
    world.call(OPENING, asked, trace=TRACE)
    values = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "c1",
        **(attributes or {}),
    }
    event = (exception, content) if exception else None
    world.span("execute_tool search", values, trace=TRACE, error=content, exception=event)
    reply = [*OPENING, asked, answers("c1", content)]
    world.call(reply, text("assistant", "Eso no funcionó."), trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    return world.convert()


def verdicts(converted: Converted) -> list[tuple[object, ...]]:
    """(class, owner) of every open failure."""
    rows = converted.failures.filter(~converted.failures["is_recovered"])
    return rows.select("error_class", "fault_owner").rows()

# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Failures of the service that runs the model."""

from .model import Case, Expected, asks, fails, gives, kind, raised, user

CASES: tuple[Case, ...] = (
    *kind(
        "model-overloaded",
        Expected("environment", "server_error"),
        raised(
            "en",
            "The provider is overloaded in the second call.",
            user("Book a table for four at Trattoria Lina tonight."),
            asks("find_restaurant", name="Trattoria Lina"),
            gives('{"id": "r-118", "name": "Trattoria Lina", "open": "18:00-23:00"}'),
            fails(
                "anthropic.OverloadedError",
                "Error code: 529 - {'type': 'error', 'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}",
            ),
            provider="anthropic",
        ),
        raised(
            "de",
            "A self-hosted model server answers 503.",
            user("Fasse das Protokoll der Eigentümerversammlung zusammen."),
            fails(
                "openai.InternalServerError",
                (
                    "Error code: 503 - {'error': {'message': 'Der Modelldienst ist überlastet. Bitte "
                    "später erneut versuchen.', 'type': 'service_unavailable'}}"
                ),
            ),
        ),
        raised(
            "es",
            "The gateway before the model finds no healthy server.",
            user("Redacta una carta de recomendación para Julia Pardo."),
            fails(
                "ServiceUnavailableError",
                "503 UNAVAILABLE: El modelo está sobrecargado en este momento; no hay servidores disponibles.",
            ),
        ),
        raised(
            "zh",
            "The model service has an inner error.",
            user("用一句话介绍一下苏州园林。"),
            fails(
                "openai.InternalServerError",
                (
                    "Error code: 500 - {'error': {'code': 'InternalServiceError', 'message': '服务内部异常"
                    "，请稍后重试', 'type': 'InternalServerError'}}"
                ),
            ),
        ),
        reward=None,
    ),
    *kind(
        "model-rate-limit",
        Expected("environment", "rate_limit"),
        raised(
            "en",
            "Tokens per minute are used up.",
            user("Draft release notes from the merged changes of this week."),
            asks("merged_changes", since="2026-03-09"),
            gives("#812 faster start\n#815 fix the date picker\n#820 new export"),
            fails(
                "openai.RateLimitError",
                (
                    "Error code: 429 - {'error': {'message': 'Rate limit reached for small-chat in "
                    "organization org-x on tokens per min (TPM): Limit 30000, Used 29480, Requested "
                    "1720.', 'type': 'tokens', 'code': 'rate_limit_exceeded'}}"
                ),
            ),
        ),
        raised(
            "de",
            "The company's gateway limits a department.",
            user("Welche Fristen nennt der Mietvertrag?"),
            fails(
                "RateLimitError", "429 Too Many Requests: Anfragelimit für Abteilung »Recht« erreicht (60 pro Minute)"
            ),
        ),
        raised(
            "es",
            "A cloud's model service limits its callers.",
            user("Dame tres ideas para el cartel de la feria."),
            fails(
                "google.genai.errors.ClientError",
                (
                    "429 RESOURCE_EXHAUSTED. {'error': {'code': 429, 'message': 'Se ha superado la cuota "
                    "de solicitudes por minuto.', 'status': 'RESOURCE_EXHAUSTED'}}"
                ),
            ),
        ),
        raised(
            "ja",
            "A cloud's model service limits its callers.",
            user("会議の議題を三つ提案して。"),
            fails(
                "botocore.errorfactory.ThrottlingException",
                (
                    "An error occurred (ThrottlingException) when calling the Converse operation: リクエス"
                    "トが多すぎます。しばらく待ってから再試行してください。"
                ),
            ),
        ),
        reward=None,
    ),
    *kind(
        "model-timeout",
        Expected("environment", "timeout"),
        raised(
            "en",
            "The model's service does not answer.",
            user("Which of these two leases is cheaper over three years?"),
            fails("openai.APITimeoutError", "Request timed out."),
        ),
        raised(
            "de",
            "The model's service does not answer in two minutes.",
            user("Erstelle aus der Stückliste eine Bestellung."),
            asks("stueckliste", baugruppe="G-40"),
            gives("4x M6x20, 2x Lager 608, 1x Welle 8 mm"),
            fails(
                "TaskCanceledException",
                (
                    "Die Anforderung wurde abgebrochen, weil das konfigurierte HttpClient.Timeout von 120 "
                    "Sekunden verstrichen ist."
                ),
            ),
        ),
        raised(
            "es",
            "The model's server is too slow for the proxy.",
            user("Explícame la cláusula novena del seguro."),
            fails(
                "HTTPStatusError",
                (
                    "Server error '504 Gateway Timeout' for url 'https://modelos.interno.example/v1/chat"
                    "/completions': tiempo de espera agotado"
                ),
            ),
        ),
        raised(
            "zh",
            "The model's service does not answer in a minute.",
            user("把这段会议纪要翻译成英文：项目延期两周。"),
            fails("httpx.ReadTimeout", "模型服务在 60 秒内没有响应"),
        ),
        reward=None,
    ),
)

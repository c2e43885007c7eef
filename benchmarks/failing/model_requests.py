# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Requests that the model's service refuses, because of what the program sent."""

from .model import Case, Expected, asks, fails, gives, kind, raised, system, tool, user

CASES: tuple[Case, ...] = (
    *kind(
        "context-overflow",
        Expected("harness", "context_overflow"),
        raised(
            "en",
            "The program sent more than the model's window takes.",
            user("Compare all the annual reports in the data room."),
            asks("read_reports", folder="data-room"),
            gives("Annual report 2019 ... Annual report 2025 ..."),
            fails(
                "openai.BadRequestError",
                (
                    "Error code: 400 - {'error': {'message': \"This model's maximum context length is "
                    "32768 tokens. However, your messages resulted in 41207 tokens.\", 'code': "
                    "'context_length_exceeded'}}"
                ),
            ),
        ),
        raised(
            "de",
            "A local server refuses a prompt that is longer than its context.",
            user("Lies das ganze Handbuch und sag mir, wo der Filter sitzt."),
            asks("handbuch", geraet="WP-9"),
            gives("Kapitel 1 Sicherheit … Kapitel 38 Anhang …"),
            fails(
                "BadRequestError",
                "400: Die Eingabe (19.842 Token) ist länger als das Kontextfenster des Modells (16.384 Token).",
            ),
        ),
        raised(
            "es",
            "The prompt is longer than the model takes.",
            user("Revisa el historial completo del paciente 88."),
            asks("historial", paciente=88),
            gives("1998: consulta… 2026: revisión…"),
            fails(
                "anthropic.BadRequestError",
                (
                    "Error code: 400 - {'type': 'error', 'error': {'type': 'invalid_request_error', "
                    "'message': 'prompt is too long: 214093 tokens > 200000 maximum'}}"
                ),
            ),
            provider="anthropic",
        ),
        raised(
            "zh",
            "The input is longer than the service allows.",
            user("把整本小说的人物关系整理出来。"),
            asks("load_book", title="红楼梦"),
            gives("第一回 甄士隐梦幻识通灵……"),
            fails(
                "openai.BadRequestError",
                (
                    "Error code: 400 - {'error': {'code': 'invalid_parameter_error', 'message': '输入长度超"
                    "出限制：最大 30720 个 token，实际 58211'}}"
                ),
            ),
        ),
        reward=None,
    ),
    *kind(
        "bad-request",
        Expected("harness", "invalid_request"),
        raised(
            "en",
            "The program left a tool's result out of the messages.",
            system("You help with travel."),
            user("Find a hotel in Ghent."),
            asks("find_hotels", city="Ghent"),
            gives("Hotel Carmersstraat; Hotel Orion", handed_back=False),
            fails(
                "anthropic.BadRequestError",
                (
                    "Error code: 400 - {'type': 'error', 'error': {'type': 'invalid_request_error', "
                    "'message': 'messages.2: `tool_use` ids were found without `tool_result` blocks "
                    "immediately after: toolu_01A. Each `tool_use` block must have a corresponding "
                    "`tool_result` block in the next message.'}}"
                ),
            ),
            provider="anthropic",
        ),
        raised(
            "de",
            "The program sent a temperature that the service does not take.",
            user("Formuliere eine Absage an den Bewerber Klein."),
            fails(
                "openai.BadRequestError",
                (
                    "Error code: 400 - {'error': {'message': \"Ungültiger Wert für 'temperature': 3.5. "
                    "Erlaubt sind Werte zwischen 0 und 2.\", 'type': 'invalid_request_error', 'param': "
                    "'temperature'}}"
                ),
            ),
        ),
        raised(
            "es",
            "The program gave a tool a name that is not allowed.",
            user("Consulta el saldo de mi tarjeta de transporte."),
            fails(
                "openai.BadRequestError",
                (
                    "Error code: 400 - {'error': {'message': \"Invalid 'tools[0].function.name': la cadena "
                    "no cumple el patrón '^[a-zA-Z0-9_-]+$'.\", 'type': 'invalid_request_error', 'param': "
                    "'tools[0].function.name'}}"
                ),
            ),
            tools=(tool("consultar saldo", "Saldo de una tarjeta.", tarjeta="string"),),
        ),
        raised(
            "ja",
            "The program sent a message without content.",
            system(""),
            user("駅前の駐車場の料金を教えて。"),
            fails(
                "BadRequestError",
                (
                    "Error code: 400 - {'object': 'error', 'message': \"messages[0].content は空にできませ"
                    "ん\", 'type': 'BadRequestError'}"
                ),
            ),
        ),
        reward=None,
    ),
    *kind(
        "wrong-key",
        Expected("harness", "authentication"),
        raised(
            "en",
            "The program has a wrong key for the model's service.",
            user("Proofread this sentence: 'Their going to the park.'"),
            fails(
                "openai.AuthenticationError",
                (
                    "Error code: 401 - {'error': {'message': 'Incorrect API key provided: "
                    "sk-test-****9QaX.', 'type': 'invalid_request_error', 'code': 'invalid_api_key'}}"
                ),
            ),
        ),
        raised(
            "de",
            "The program has no key for the company's model gateway.",
            user("Was bedeutet »Schuldbeitritt«?"),
            fails("AuthenticationError", "401 Unauthorized: Kein gültiger API-Schlüssel übermittelt."),
        ),
        raised(
            "es",
            "The program's key was withdrawn.",
            user("Propón un título para mi blog de cocina."),
            fails(
                "anthropic.AuthenticationError",
                (
                    "Error code: 401 - {'type': 'error', 'error': {'type': 'authentication_error', "
                    "'message': 'invalid x-api-key: la clave ha sido revocada'}}"
                ),
            ),
            provider="anthropic",
        ),
        raised(
            "zh",
            "The program has a wrong key for the model's service.",
            user("帮我给小猫起个名字。"),
            fails(
                "openai.AuthenticationError",
                "Error code: 401 - {'error': {'code': 'InvalidApiKey', 'message': '提供的 API Key 无效'}}",
            ),
        ),
        reward=None,
    ),
    *kind(
        "no-such-model",
        Expected("harness"),
        raised(
            "en",
            "The program asks for a model that the service does not have.",
            user("Suggest a name for a bakery."),
            fails(
                "openai.NotFoundError",
                (
                    "Error code: 404 - {'error': {'message': 'The model `small-chatt` does not exist or "
                    "you do not have access to it.', 'type': 'invalid_request_error', 'code': "
                    "'model_not_found'}}"
                ),
            ),
            model="small-chatt",
        ),
        raised(
            "de",
            "The program asks a local server for a model that it has not loaded.",
            user("Wie lautet der Plural von »Globus«?"),
            fails("NotFoundError", "404: Modell »kleines-modell:7b« nicht gefunden"),
            model="kleines-modell:7b",
        ),
        raised(
            "es",
            "The program names a deployment that does not exist.",
            user("Resume este titular: sube el precio del aceite."),
            fails(
                "openai.NotFoundError",
                (
                    "Error code: 404 - {'error': {'code': 'DeploymentNotFound', 'message': 'La "
                    "implementación de API para este recurso no existe.'}}"
                ),
            ),
            model="chat-prod-2",
        ),
        raised(
            "ja",
            "The program asks for a model that was retired.",
            user("俳句を一つ詠んで。"),
            fails(
                "NotFoundError",
                (
                    "Error code: 404 - {'error': {'message': 'モデル old-chat-2023 は提供を終了しました', "
                    "'code': 'model_not_found'}}"
                ),
            ),
            model="old-chat-2023",
        ),
        reward=None,
    ),
)

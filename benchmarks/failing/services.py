# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Services behind a tool that are down, that ration their answers, or that do not let the tool's process in."""

from .model import Case, Expected, asks, gives, kind, raised, raises, says, told, user

CASES: tuple[Case, ...] = (
    *kind(
        "service-down",
        Expected("environment", "server_error"),
        told(
            "en",
            "The payment service is being maintained.",
            user("Refund order 50231 in full, please, the customer returned it."),
            asks("create_refund", order_id="50231", amount=49.9),
            gives(
                'HTTP 503 Service Unavailable\n{"title": "Scheduled maintenance", "detail": '
                '"The payments API is unavailable until 04:00 UTC."}'
            ),
            says("I wasn't able to make the refund, because payments are under maintenance."),
        ),
        raised(
            "de",
            "The calendar server answers 502.",
            user("Leg mir für Donnerstag 14 Uhr einen Termin mit Frau Öztürk an."),
            asks("termin_anlegen", titel="Frau Öztürk", beginn="2026-03-19T14:00", dauer_min=30),
            raises(
                "requests.exceptions.HTTPError",
                "502 Server Error: Bad Gateway for url: https://kalender.firma.example/api/events",
            ),
            says("Der Termin konnte nicht angelegt werden, der Kalenderserver antwortet nicht richtig."),
        ),
        told(
            "es",
            "The invoice service is down.",
            user("Emite la factura del pedido P-2201."),
            asks("emitir_factura", pedido="P-2201"),
            gives(
                "El servicio de facturación electrónica no está disponible en este momento por una "
                "incidencia en la Agencia. Código HTTP: 503"
            ),
            says("La factura no se ha podido emitir por una incidencia del servicio."),
        ),
        raised(
            "ja",
            "The stock service is being maintained.",
            user("商品A-300の在庫を東京倉庫で確認して。"),
            asks("zaiko_check", item="A-300", warehouse="東京"),
            raises(
                "feign.FeignException$ServiceUnavailable",
                (
                    "[503 Service Unavailable] during [GET] to [http://zaiko-service/items/A-300]: ただいま"
                    "メンテナンス中です"
                ),
            ),
            says("在庫サービスがメンテナンス中のため確認できませんでした。"),
        ),
    ),
    *kind(
        "too-many-requests",
        Expected("environment", "rate_limit"),
        raised(
            "en",
            "A code host limits the tool's requests.",
            user("Which of our open pull requests touch the parser?"),
            asks("search_pull_requests", query="repo:acme/lang is:open path:parser"),
            raises(
                "HttpError", "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
            ),
            says("I couldn't search the pull requests."),
        ),
        told(
            "de",
            "The address check limits its callers.",
            user("Prüfe, ob die Adresse Lindenallee 4 in 50668 Köln existiert."),
            asks("adresse_pruefen", strasse="Lindenallee 4", plz="50668", ort="Köln"),
            gives("Fehler 429: Zu viele Anfragen. Bitte versuchen Sie es in 58 Sekunden erneut."),
            says("Die Adresse konnte ich nicht prüfen."),
        ),
        raised(
            "es",
            "The flight interface limits its callers.",
            user("¿A qué hora llega el vuelo IB6842?"),
            asks("estado_vuelo", vuelo="IB6842"),
            raises("ApiException", "429 Too Many Requests: ha superado el límite de 10 peticiones por segundo"),
            says("No he podido consultar la llegada del vuelo."),
        ),
        told(
            "zh",
            "The weather interface limits its callers.",
            user("杭州这周末适合爬山吗？"),
            asks("weather", city="杭州", days=3),
            gives('{"code": 429, "msg": "请求过于频繁，请稍后再试"}'),
            says("抱歉，暂时拿不到天气数据。"),
        ),
    ),
    *kind(
        "quota-used-up",
        Expected("environment"),
        told(
            "en",
            "The geocoder's day quota is used up.",
            user("Give me the coordinates of 5 Harbour Road, Cork."),
            asks("geocode", address="5 Harbour Road, Cork"),
            gives(
                '{"status": "OVER_QUERY_LIMIT", "error_message": "You have exceeded your daily '
                'request quota for this API.", "results": []}'
            ),
            says("I can't give you the coordinates at the moment."),
        ),
        raised(
            "de",
            "The month's text messages are used up.",
            user("Schick Herrn Brandt eine SMS, dass sein Auto fertig ist."),
            asks("sms_senden", nummer="+4915112345678", text="Ihr Auto ist fertig."),
            raises(
                "SmsGatewayException",
                "Das Monatskontingent von 500 Nachrichten ist ausgeschöpft (Kontostand: 0,00 EUR).",
            ),
            says("Die SMS konnte nicht verschickt werden."),
        ),
        told(
            "es",
            "The month's translations are used up.",
            user("Traduce el contrato adjunto al catalán."),
            asks("traducir", documento="contrato.docx", destino="ca"),
            gives("Quota exceeded: se ha alcanzado el límite mensual de 500.000 caracteres de la suscripción gratuita"),
            says("No he podido traducir el contrato."),
        ),
        raised(
            "ja",
            "The day's mails are used up.",
            user("参加者全員に明日の会場案内をメールして。"),
            asks("send_mail", to="sankasha@ml.example", subject="会場のご案内"),
            raises(
                "smtplib.SMTPDataError", "(550, b'5.4.5 Daily user sending limit exceeded. 1日の送信上限に達しました')"
            ),
            says("上限に達しているため、メールを送信できませんでした。"),
        ),
    ),
    *kind(
        "tool-token-expired",
        Expected("environment", "authentication"),
        raised(
            "en",
            "The CRM connector's token has run out.",
            user("When did we last talk to Marlow Foods?"),
            asks("crm_activities", account="Marlow Foods", limit=5),
            raises(
                "simple_salesforce.exceptions.SalesforceExpiredSession",
                (
                    "Expired session for https://acme.my.crm.example/services/data. Response content: "
                    "[{'message': 'Session expired or invalid', 'errorCode': 'INVALID_SESSION_ID'}]"
                ),
            ),
            says("I couldn't read the activities for Marlow Foods."),
        ),
        told(
            "de",
            "The token of the wiki's connector has run out.",
            user("Was steht im Wiki zur Reisekostenabrechnung?"),
            asks("wiki_suche", begriff="Reisekostenabrechnung"),
            gives(
                "401 Unauthorized – Das Zugriffstoken des Dienstkontos »svc-wiki« ist am 28.02.2026 "
                "abgelaufen. Bitte erneuern."
            ),
            says("Im Wiki konnte ich nicht nachsehen."),
        ),
        told(
            "es",
            "The storage tool's credentials have run out.",
            user("Sube el informe trimestral a la carpeta compartida."),
            asks("subir_archivo", ruta="/tmp/informe_t1.pdf", carpeta="compartida/informes"),
            gives(
                "An error occurred (ExpiredToken) when calling the PutObject operation: el token de "
                "seguridad proporcionado ha caducado"
            ),
            says("El informe no se ha podido subir."),
        ),
        raised(
            "zh",
            "The calendar's grant was revoked.",
            user("把周五下午的评审会挪到下周一同一时间。"),
            asks("move_event", event_id="evt_20260313_review", start="2026-03-16T14:00"),
            raises(
                "google.auth.exceptions.RefreshError",
                (
                    "('invalid_grant: Token has been expired or revoked.', {'error': 'invalid_grant', "
                    "'error_description': '授权已过期或被撤销'})"
                ),
            ),
            says("会议没能改期，日历授权已失效。"),
        ),
    ),
    *kind(
        "service-account-forbidden",
        Expected("environment", "permission_denied"),
        told(
            "en",
            "The agent's service account may not read the pods.",
            user("Why does the checkout deployment keep restarting?"),
            asks("kubectl_get", resource="pods", namespace="checkout"),
            gives(
                "Error from server (Forbidden): pods is forbidden: User "
                '"system:serviceaccount:agents:ops-bot" cannot list resource "pods" in API group '
                '"" in the namespace "checkout"'
            ),
            says("I have no access to that namespace, so I can't say why it restarts."),
        ),
        raised(
            "de",
            "The database account has no right to read the table.",
            user("Wie viele neue Verträge gab es im Februar?"),
            asks("vertragszahl", monat="2026-02"),
            raises("psycopg.errors.InsufficientPrivilege", "FEHLER:  keine Berechtigung für Tabelle vertraege"),
            says("Die Zahl der Verträge konnte ich nicht abfragen."),
        ),
        raised(
            "es",
            "The service account may not read the bucket.",
            user("Resume el acta de la última junta."),
            asks("leer_acta", fecha="2026-02-24"),
            raises(
                "google.api_core.exceptions.Forbidden",
                (
                    "403 GET https://storage.example/b/actas/o: agente@proyecto.iam.example no tiene "
                    "acceso storage.objects.get al objeto."
                ),
            ),
            says("No tengo acceso al acta."),
        ),
        told(
            "ja",
            "The connected app was not given the right to post.",
            user("営業チャンネルに今日の売上を投稿して。"),
            asks("post_message", channel="#eigyo", text="本日の売上は128万円です。"),
            gives(
                '{"ok": false, "error": "missing_scope", "needed": "chat:write", '
                '"provided": "channels:read", "message": "ボットに投稿権限が付与されていません'
                '"}'
            ),
            says("権限がないため投稿できませんでした。"),
        ),
    ),
)

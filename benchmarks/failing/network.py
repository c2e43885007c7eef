# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Failures of the network between a tool and the service it calls."""

from .model import Case, Expected, asks, gives, kind, raised, raises, says, told, user

CASES: tuple[Case, ...] = (
    *kind(
        "name-not-resolved",
        Expected("environment", "connection_error"),
        told(
            "en",
            "A weather service's host has no address.",
            user("Will it rain in Bergen tomorrow morning?"),
            asks("get_forecast", city="Bergen", hours=24),
            gives(
                "Error: request to https://api.meteo-north.example/v2/forecast failed, reason: "
                "getaddrinfo ENOTFOUND api.meteo-north.example"
            ),
            says("I couldn't get the forecast for Bergen, sorry."),
        ),
        raised(
            "de",
            "The exchange-rate service's name cannot be resolved.",
            user("Wie viel sind 250 Schweizer Franken heute in Euro?"),
            asks("wechselkurs", von="CHF", nach="EUR"),
            raises(
                "java.net.UnknownHostException", "kurse.bankdaten.example: Der Name oder der Dienst ist nicht bekannt"
            ),
            says("Den aktuellen Kurs konnte ich leider nicht abrufen."),
        ),
        told(
            "es",
            "The parcel tool does not find its server.",
            user("Dime por dónde va mi paquete ES-77120-K."),
            asks("rastrear_envio", codigo="ES-77120-K"),
            gives("curl: (6) No se pudo resolver el host: tracking.correo-rapido.example"),
            says("No he podido consultar el estado de tu paquete."),
        ),
        raised(
            "zh",
            "The map service's name cannot be resolved.",
            user("从上海虹桥站到外滩怎么走最快？"),
            asks("route_plan", origin="上海虹桥站", destination="外滩"),
            raises(
                "requests.exceptions.ConnectionError",
                (
                    "HTTPSConnectionPool(host='map.tuji.example', port=443): Max retries exceeded with "
                    "url: /route (Caused by NameResolutionError(\"Failed to resolve 'map.tuji.example' "
                    '([Errno -3] 域名解析暂时失败)"))'
                ),
            ),
            says("抱歉，路线查询没有成功。"),
        ),
    ),
    *kind(
        "connection-refused",
        Expected("environment", "connection_error"),
        raised(
            "en",
            "The inventory service is not listening.",
            user("How many blue kettles do we still have in Leeds?"),
            asks("stock_level", sku="KET-BLU-17", warehouse="LDS"),
            raises(
                "grpc.RpcError",
                (
                    'rpc error: code = Unavailable desc = connection error: desc = "transport: Error '
                    'while dialing: dial tcp 10.4.0.21:50051: connect: connection refused"'
                ),
            ),
            says("The stock system can't be reached right now, so I can't tell you the number."),
        ),
        told(
            "de",
            "The database server takes no connection.",
            user("Welche Rechnungen von Kunde 4471 sind noch offen?"),
            asks("offene_rechnungen", kunde=4471),
            gives(
                "psql: Fehler: Verbindung zum Server auf »db-buchhaltung« (10.12.3.8), Port 5432 "
                "fehlgeschlagen: Verbindungsaufbau abgelehnt\n\tLäuft der Server auf diesem Host und "
                "akzeptiert er TCP/IP-Verbindungen?"
            ),
            says("Ich komme gerade nicht an die Rechnungsdaten."),
        ),
        raised(
            "es",
            "The cache with the prices is down.",
            user("¿Cuál es el precio de la habitación doble del 3 al 5 de mayo?"),
            asks("precio_habitacion", tipo="doble", entrada="2026-05-03", salida="2026-05-05"),
            raises(
                "redis.exceptions.ConnectionError", "Error 111 connecting to precios-cache:6379. Conexión rehusada."
            ),
            says("Ahora mismo no puedo darte el precio."),
        ),
        told(
            "ja",
            "The company's search server refuses the connection.",
            user("就業規則の有給休暇の条文を探してください。"),
            asks("search_rules", keyword="有給休暇"),
            gives("検索サーバーに接続できませんでした: connect ECONNREFUSED 127.0.0.1:9200"),
            says("申し訳ありません、規則を検索できませんでした。"),
        ),
    ),
    *kind(
        "certificate",
        Expected("environment"),
        told(
            "en",
            "The certificate of a registry has run out.",
            user("Check which version of our billing image is the latest in the registry."),
            asks("list_tags", repository="billing/api"),
            gives(
                'Get "https://registry.corp.example/v2/billing/api/tags/list": tls: failed to verify '
                "certificate: x509: certificate has expired or is not yet valid: current time "
                "2026-04-02T08:11:40Z is after 2026-04-01T23:59:59Z"
            ),
            says("I was not able to read the tags from the registry."),
        ),
        raised(
            "de",
            "The certificate of an authority's interface has run out.",
            user("Prüfe bitte die Umsatzsteuer-ID DE129273398 auf Gültigkeit."),
            asks("ust_id_pruefen", ust_id="DE129273398"),
            raises(
                "System.Security.Authentication.AuthenticationException",
                "Das Remotezertifikat wurde laut Validierungsverfahren für ungültig befunden: NotTimeValid",
            ),
            says("Die Prüfung der Umsatzsteuer-ID war leider nicht möglich."),
        ),
        raised(
            "es",
            "Nobody known has signed the bank's certificate.",
            user("Descarga los movimientos de marzo de la cuenta de la empresa."),
            asks("movimientos", cuenta="ES91 2100 0418 45", mes="2026-03"),
            raises(
                "ssl.SSLCertVerificationError",
                (
                    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local "
                    "issuer certificate (_ssl.c:1006)"
                ),
            ),
            says("No he podido descargar los movimientos del banco."),
        ),
        told(
            "zh",
            "The certificate of the code host has run out.",
            user("看一下仓库里最近三次提交都改了什么。"),
            asks("git_fetch", remote="origin", branch="main"),
            gives(
                "fatal: 无法访问 'https://git.neiwang.example/app.git/'：server certificate "
                "verification failed. CAfile: none CRLfile: none（证书已过期）"
            ),
            says("没能取到最新的提交记录。"),
        ),
    ),
    *kind(
        "connection-reset",
        Expected("environment", "connection_error"),
        raised(
            "en",
            "The document store drops the connection half way.",
            user("Summarise the supplier contract with Halden Ltd."),
            asks("download_document", document_id="contracts/halden-2025.pdf"),
            raises("ConnectionResetError", "[Errno 104] Connection reset by peer"),
            says("The contract could not be downloaded, so I have no summary for you."),
        ),
        told(
            "de",
            "The file server ends the transfer early.",
            user("Hol die Preisliste vom Lieferantenserver und nenne mir den Preis für Artikel 88-13."),
            asks("ftp_holen", pfad="/out/preisliste.csv"),
            gives(
                "Übertragung nach 18.432 von 912.004 Bytes abgebrochen: Die Verbindung wurde vom "
                "Kommunikationspartner zurückgesetzt."
            ),
            says("Die Preisliste ließ sich nicht vollständig laden."),
        ),
        told(
            "es",
            "The mail server cuts the connection.",
            user("Busca en mi correo el localizador del vuelo a Lima."),
            asks("buscar_correo", consulta="vuelo Lima localizador"),
            gives("Error de IMAP: conexión reinicializada por la máquina remota (imap.correo.example:993)"),
            says("No he podido buscar en tu correo."),
        ),
        raised(
            "ja",
            "The connection ends while map tiles are being loaded.",
            user("本社の周辺地図を画像にしてください。"),
            asks("render_map", address="大阪市北区梅田2-5-10", zoom=16),
            raises("java.net.SocketException", "接続が相手からリセットされました (Connection reset by peer)"),
            says("地図の画像を作成できませんでした。"),
        ),
    ),
    *kind(
        "read-timeout",
        Expected("environment", "timeout"),
        told(
            "en",
            "The flight service does not answer in time.",
            user("Find me the cheapest flight from Oslo to Porto on 12 June."),
            asks("search_flights", origin="OSL", destination="OPO", date="2026-06-12"),
            gives("504 Gateway Time-out: the upstream flight provider did not answer within 30 s"),
            says("I could not find any flights because the search did not finish."),
        ),
        raised(
            "de",
            "The route query runs out of time.",
            user("Wie lange brauche ich mit dem Rad von Kassel nach Göttingen?"),
            asks("fahrzeit", start="Kassel", ziel="Göttingen", mittel="fahrrad"),
            raises("System.TimeoutException", "Das Zeitlimit für den Vorgang wurde nach 00:00:20 überschritten."),
            says("Die Fahrzeit konnte ich nicht ermitteln."),
        ),
        told(
            "es",
            "The land register takes too long.",
            user("¿A nombre de quién está la finca 20118 de Getafe?"),
            asks("consulta_finca", finca="20118", municipio="Getafe"),
            gives('{"estado": "error", "detalle": "Se agotó el tiempo de espera (60 s) al consultar el registro"}'),
            says("El registro no ha respondido, así que no puedo decírtelo."),
        ),
        raised(
            "zh",
            "The parcel gateway does not answer in time.",
            user("帮我查一下运单 SF8820013345 到哪里了。"),
            asks("track_parcel", number="SF8820013345"),
            raises("httpx.ReadTimeout", "读取超时：物流网关 15 秒内未返回数据"),
            says("物流信息暂时查不到。"),
        ),
    ),
)

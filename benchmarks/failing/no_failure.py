# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Episodes in which nothing failed, although their words sound like it."""

from .model import NOTHING, Case, asks, gives, kind, says, told, user

CASES: tuple[Case, ...] = (
    *kind(
        "log-of-errors",
        NOTHING,
        told(
            "en",
            "The user asked for the errors in a log.",
            user("What errors are in yesterday's nginx log?"),
            asks("search_log", file="nginx-error.log", day="2026-03-12"),
            gives(
                "03:14:07 [error] connect() failed (111: Connection refused) while connecting to "
                "upstream\n03:14:09 [error] upstream timed out (110: Connection timed out)"
            ),
            says("There were two: at 03:14:07 a refused connection to the upstream, and two seconds later a time-out."),
        ),
        told(
            "de",
            "The user asked why a backup of last week failed.",
            user("Warum ist die Sicherung am Montag fehlgeschlagen?"),
            asks("sicherungsprotokoll", tag="2026-03-09"),
            gives(
                "Mo 02:00 FEHLER: Auf dem Gerät ist kein Speicherplatz mehr verfügbar\nMo 02:00 Sicherung abgebrochen"
            ),
            says("Am Montag war auf dem Sicherungslaufwerk kein Platz mehr."),
        ),
        told(
            "es",
            "The user asked how many exceptions an application has logged.",
            user("¿Cuántas excepciones registró la aplicación esta noche?"),
            asks("contar_excepciones", desde="22:00", hasta="06:00"),
            gives("java.lang.NullPointerException: 3\njava.net.SocketTimeoutException: 11"),
            says("Catorce: tres NullPointerException y once SocketTimeoutException."),
        ),
        told(
            "zh",
            "The user asked for the causes of alarms.",
            user("昨天的报警主要是什么原因？"),
            asks("alarm_list", day="2026-03-12"),
            gives("10:02 数据库连接超时\n10:05 数据库连接超时\n18:40 磁盘空间不足"),
            says("昨天共三次报警：两次是数据库连接超时，一次是磁盘空间不足。"),
        ),
        reward=1.0,
    ),
    *kind(
        "text-on-outages",
        NOTHING,
        told(
            "en",
            "The tool gives an article on an outage.",
            user("Summarise the news about Tuesday's card payment outage."),
            asks("read_article", url="https://news.example/card-outage"),
            gives(
                "Card payments failed across the country on Tuesday after a server error at a clearing "
                "house. Terminals showed 'transaction declined' until 3 pm."
            ),
            says("A server error at a clearing house made card payments fail on Tuesday until 3 pm."),
        ),
        told(
            "de",
            "The tool gives a chapter on failures of bridges.",
            user("Worum geht es im dritten Kapitel?"),
            asks("kapitel", nummer=3),
            gives(
                "Kapitel 3: Versagen und Zusammenbruch. Fehler in der Statik, abgelehnte Gutachten und "
                "überschrittene Grenzwerte …"
            ),
            says("Das dritte Kapitel handelt davon, wie Brücken durch Fehler in der Statik versagten."),
        ),
        told(
            "es",
            "The tool gives a report on a blackout.",
            user("¿Qué dice el informe sobre el apagón?"),
            asks("leer_informe", titulo="apagón"),
            gives(
                "El 28 de abril la red falló: se perdió la conexión con Francia y el servicio quedó no "
                "disponible durante diez horas."
            ),
            says("Que la red falló el 28 de abril y el servicio estuvo interrumpido diez horas."),
        ),
        told(
            "ja",
            "The tool gives a notice on a past outage.",
            user("先週の障害のお知らせを要約して。"),
            asks("read_notice", id="n-310"),
            gives(
                "3月6日、認証サーバーの障害によりログインできない状態が続きました。原因はタイムアウト設定の誤りでした。"
            ),
            says("3月6日に、設定の誤りによる認証サーバーの障害でログインできなくなりました。"),
        ),
        reward=1.0,
    ),
    *kind(
        "nothing-found",
        NOTHING,
        told(
            "en",
            "A search finds nothing, and that is the answer.",
            user("Do I have any unread mail from the tax office?"),
            asks("search_mail", query="from:tax is:unread"),
            gives("No results found."),
            says("No, there is no unread mail from the tax office."),
        ),
        told(
            "de",
            "A search finds nothing, and that is the answer.",
            user("Gibt es am Sonntag noch freie Plätze im Sprachkurs?"),
            asks("freie_plaetze", kurs="Sprachkurs", tag="Sonntag"),
            gives("[]"),
            says("Nein, am Sonntag ist nichts mehr frei."),
        ),
        told(
            "es",
            "A search finds nothing; another one finds it.",
            user("Busca recetas con alcachofa para hoy."),
            asks("buscar_recetas", ingrediente="alcachofa", dificultad="fácil"),
            gives("0 resultados"),
            asks("buscar_recetas", ingrediente="alcachofa", dificultad="media"),
            gives("Alcachofas al horno (40 min)"),
            says("Fáciles no hay, pero tienes «Alcachofas al horno», de dificultad media."),
        ),
        told(
            "zh",
            "A search finds nothing, and that is the answer.",
            user("我名下有没有未缴的交通罚款？"),
            asks("traffic_fines", plate="沪A12345"),
            gives("未查询到相关记录"),
            says("没有，您名下没有未缴的交通罚款。"),
        ),
        reward=1.0,
    ),
    *kind(
        "tests-that-fail",
        NOTHING,
        told(
            "en",
            "The user asked which tests fail.",
            user("Run the tests and tell me which ones fail. Don't fix anything."),
            asks("run_tests", target="all"),
            gives(
                "FAILED tests/test_cart.py::test_total - AssertionError: assert 9 == 10\n1 failed, 41 passed in 3.20s"
            ),
            says("One test fails: test_total in tests/test_cart.py, 9 in place of 10. The other 41 pass."),
        ),
        told(
            "de",
            "The user asked for the findings of a check.",
            user("Prüfe die Rechtschreibung im Entwurf und liste nur die Fehler auf."),
            asks("rechtschreibung", datei="entwurf.txt"),
            gives("3 Fehler gefunden: »Rythmus« (Z. 4), »wiederspiegeln« (Z. 9), »Standart« (Z. 12)"),
            says("Drei Fehler: »Rythmus«, »wiederspiegeln« und »Standart«."),
        ),
        told(
            "es",
            "The user asked whether a certificate has run out.",
            user("¿Está caducado el certificado de la intranet?"),
            asks("ver_certificado", host="intranet.example"),
            gives("estado: certificate has expired; válido hasta: 2026-03-01"),
            says("Sí, caducó el 1 de marzo de 2026."),
        ),
        told(
            "ja",
            "The user asked for the lint's findings.",
            user("リンターの警告だけ教えて。修正は不要です。"),
            asks("lint", path="src"),
            gives("src/app.ts:14 error  'x' is never reassigned\n✖ 1 problem (1 error, 0 warnings)"),
            says("1件です。src/app.ts の14行目で、x が再代入されていないという指摘です。"),
        ),
        reward=1.0,
    ),
    *kind(
        "code-explained",
        NOTHING,
        told(
            "en",
            "The user asked what an error code means.",
            user("What does HTTP 429 mean?"),
            asks("docs_lookup", term="HTTP 429"),
            gives(
                "429 Too Many Requests: the user has sent too many requests in a given amount of time (rate limiting)."
            ),
            says("It means the client has sent too many requests in a given time."),
        ),
        told(
            "de",
            "The user asked what a washing machine's code means.",
            user("Was bedeutet E18 auf meiner Waschmaschine?"),
            asks("handbuch_suche", begriff="E18"),
            gives("Fehler E18: Wasser läuft nicht ab. Laugenpumpe verstopft."),
            says("E18 heißt, dass das Wasser nicht abläuft; meist ist die Laugenpumpe verstopft."),
        ),
        told(
            "es",
            "The user asked what a message means.",
            user("¿Qué significa «Permission denied (publickey)»?"),
            asks("buscar_ayuda", texto="Permission denied (publickey)"),
            gives("Permission denied (publickey): el servidor SSH no ha aceptado ninguna de las claves del cliente."),
            says("Que el servidor no ha aceptado ninguna de tus claves SSH."),
        ),
        told(
            "zh",
            "The user asked what a message means.",
            user("ORA-12541 是什么意思？"),
            asks("kb_search", keyword="ORA-12541"),
            gives("ORA-12541: TNS: 无监听程序。原因：目标主机上监听器未启动。"),
            says("表示目标主机上的监听程序没有启动。"),
        ),
        reward=1.0,
    ),
    *kind(
        "customers-complaint",
        NOTHING,
        told(
            "en",
            "A ticket's text complains of a failed payment.",
            user("Read me ticket 5120."),
            asks("read_ticket", number=5120),
            gives("'My payment failed three times with ERROR: card declined and nobody helps me!' - K. Bauer"),
            says("K. Bauer complains that the payment was declined three times and that nobody helped."),
        ),
        told(
            "de",
            "A review says that an app crashes.",
            user("Was steht in der neuesten Bewertung?"),
            asks("neueste_bewertung", produkt="App"),
            gives("1 Stern: »Stürzt beim Start ab, Internal Server Error, Zugriff verweigert – nichts geht!«"),
            says("Jemand gibt einen Stern, weil die App beim Start abstürzt."),
        ),
        told(
            "es",
            "A survey's answer tells of an error.",
            user("¿Qué contestó el último encuestado?"),
            asks("ultima_respuesta", encuesta="web"),
            gives("«La web me daba error 500 y tiempo de espera agotado todo el rato.»"),
            says("Que la web le daba error continuamente."),
        ),
        told(
            "ja",
            "A mail tells of an account that cannot be opened.",
            user("サポート宛ての最新メールの内容は？"),
            asks("latest_mail", box="support"),
            gives("「認証に失敗しました」と表示されてログインできません。助けてください。"),
            says("認証に失敗してログインできないというお問い合わせです。"),
        ),
        reward=1.0,
    ),
    *kind(
        "absent-as-hoped",
        NOTHING,
        told(
            "en",
            "That a name does not exist means that it is free.",
            user("Is the username river-otter still free?"),
            asks("lookup_user", name="river-otter"),
            gives("404 Not Found: user river-otter does not exist"),
            says("Yes, river-otter is free."),
        ),
        told(
            "de",
            "That a domain is not there means that it can be had.",
            user("Ist die Domain zimtschnecke-kiel.example noch zu haben?"),
            asks("whois", domain="zimtschnecke-kiel.example"),
            gives("Status: free (kein Eintrag gefunden)"),
            says("Ja, die Domain ist noch frei."),
        ),
        told(
            "es",
            "That a file is not there was the question.",
            user("Comprueba que ya no existe el archivo secreto.txt."),
            asks("existe", ruta="secreto.txt"),
            gives("No existe el archivo o el directorio"),
            says("Correcto: el archivo ya no existe."),
        ),
        told(
            "zh",
            "That a book is not registered was the question.",
            user("确认一下旧账号 old_li 已经注销了吗？"),
            asks("find_account", name="old_li"),
            gives("账号不存在"),
            says("是的，old_li 已经注销。"),
        ),
        reward=1.0,
    ),
    *kind(
        "no-errors-reported",
        NOTHING,
        told(
            "en",
            "Fields for errors that are empty.",
            user("Import the new price list."),
            asks("import_prices", file="prices-april.csv"),
            gives('{"imported": 312, "failed": 0, "errors": [], "error": null, "timeout": false}'),
            says("All 312 prices are imported."),
        ),
        told(
            "de",
            "A report that says there were no faults.",
            user("Sende den Newsletter an alle Abonnenten."),
            asks("newsletter_senden", ausgabe="März"),
            gives("gesendet: 840, fehlgeschlagen: 0, Fehler: keine"),
            says("Der Newsletter ging an 840 Abonnenten."),
        ),
        told(
            "es",
            "A check that reports no errors.",
            user("Valida la declaración antes de enviarla."),
            asks("validar", modelo="303"),
            gives("Errores: 0. Avisos: 0. Resultado: sin errores."),
            says("La declaración no tiene errores."),
        ),
        told(
            "ja",
            "A transfer with an empty field for errors.",
            user("写真をNASにコピーして。"),
            asks("copy_photos", dest="NAS"),
            gives("コピー 220件、エラー 0件、失敗 なし"),
            says("220枚すべてコピーしました。"),
        ),
        reward=1.0,
    ),
)

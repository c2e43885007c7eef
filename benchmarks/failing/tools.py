# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Failures of a tool's own code."""

from .model import Case, Expected, asks, gives, kind, raised, raises, says, told, user

CASES: tuple[Case, ...] = (
    *kind(
        "null-in-the-tool",
        Expected("tool", "tool_error"),
        told(
            "en",
            "A web tool reads a field of nothing.",
            user("What does the loyalty card of Amir Haddad say?"),
            asks("loyalty_card", customer="Amir Haddad"),
            gives(
                "TypeError: Cannot read properties of undefined (reading 'tier')\n    at formatCard "
                "(/srv/mcp-loyalty/dist/card.js:41:22)\n    at handler "
                "(/srv/mcp-loyalty/dist/index.js:112:10)"
            ),
            says("The loyalty card couldn't be shown."),
        ),
        raised(
            "de",
            "A .NET tool uses an object that is not there.",
            user("Wie hoch ist der Zählerstand in Wohnung 12?"),
            asks("zaehlerstand", wohnung=12),
            raises(
                "System.NullReferenceException",
                (
                    "Der Objektverweis wurde nicht auf eine Objektinstanz festgelegt.\n   bei "
                    "Hausverwaltung.Zaehler.Lesen(Int32 wohnung) in Zaehler.cs:Zeile 57."
                ),
            ),
            says("Den Zählerstand kann ich nicht ermitteln."),
        ),
        raised(
            "es",
            "A Java tool calls a method of null.",
            user("¿Qué profesor da Química en 2.º B?"),
            asks("horario_profesor", asignatura="Química", grupo="2B"),
            raises(
                "java.lang.NullPointerException",
                (
                    'Cannot invoke "es.colegio.Profesor.getNombre()" because the return value of '
                    '"es.colegio.Horario.buscar(String, String)" is null'
                ),
            ),
            says("No he podido averiguar el profesor."),
        ),
        told(
            "zh",
            "A Python tool uses the attribute of None.",
            user("查询 B 栋 1203 室的物业费缴纳情况。"),
            asks("property_fee", building="B", room="1203"),
            gives(
                '工具内部错误：Traceback (most recent call last):\n  File "tools/fee.py", '
                "line 63, in run\n    return record.last.amount\nAttributeError: 'NoneType' object has "
                "no attribute 'amount'"
            ),
            says("物业费信息查询失败。"),
        ),
    ),
    *kind(
        "tool-panics",
        Expected("tool", "tool_error"),
        raised(
            "en",
            "A Go tool reaches past the end of a slice.",
            user("Show the last deploy of the search service."),
            asks("last_deploy", service="search"),
            raises(
                "runtime.boundsError",
                (
                    "panic: runtime error: index out of range [0] with length 0\n\ngoroutine 1 [running]:\n"
                    "main.lastDeploy(...)\n\t/src/deploytool/main.go:88"
                ),
            ),
            says("I can't show the last deploy."),
        ),
        told(
            "de",
            "A Rust tool panics on an unwrap.",
            user("Welche Pegelstände meldet die Elbe in Dresden?"),
            asks("pegel", gewaesser="Elbe", ort="Dresden"),
            gives(
                "thread 'main' panicked at src/pegel.rs:29:44:\ncalled `Option::unwrap()` on a `None` "
                "value\nDas Werkzeug »pegel« wurde unerwartet beendet."
            ),
            says("Die Pegelstände sind nicht abrufbar."),
        ),
        raised(
            "es",
            "A native library of the tool crashes.",
            user("Reconoce el texto de la foto de la placa."),
            asks("ocr", imagen="placa.jpg"),
            raises("SubprocessError", "ocr-engine terminó con la señal 11 (violación de segmento, «core» generado)"),
            says("No se ha podido leer la placa."),
        ),
        told(
            "ja",
            "A C++ tool ends on an assertion of its own.",
            user("この住所を緯度経度に変換して：札幌市中央区北1条西2丁目"),
            asks("geocode", address="札幌市中央区北1条西2丁目"),
            gives(
                "geocoder: src/normalize.cpp:210: Assertion `tokens.size() > 0' failed. プロセスが異常"
                "終了しました (SIGABRT)"
            ),
            says("座標への変換に失敗しました。"),
        ),
    ),
    *kind(
        "tools-own-query",
        Expected("tool", "tool_error"),
        told(
            "en",
            "The tool's own SQL names a column that was renamed.",
            user("List the members who joined in January."),
            asks("members_joined", month="2026-01"),
            gives(
                "members_joined failed: ERROR: column m.joined_on does not exist (query in "
                "members.py:17: SELECT m.name FROM member m WHERE m.joined_on >= $1)"
            ),
            says("The list of new members isn't available."),
        ),
        raised(
            "de",
            "The tool's stored procedure is missing.",
            user("Welche Lieferanten haben wir in Tschechien?"),
            asks("lieferanten", land="CZ"),
            raises(
                "Microsoft.Data.SqlClient.SqlException",
                "Die gespeicherte Prozedur 'dbo.usp_LieferantenNachLand' wurde nicht gefunden.",
            ),
            says("Die Lieferanten konnte ich nicht abrufen."),
        ),
        told(
            "es",
            "The tool builds broken SQL from a name with an apostrophe.",
            user("Busca la ficha del socio Pau d'Ors."),
            asks("buscar_socio", nombre="Pau d'Ors"),
            gives(
                "Error interno en buscar_socio(): You have an error in your SQL syntax near 'Ors'' at "
                "line 1 (consulta generada: SELECT * FROM socios WHERE nombre = 'Pau d'Ors')"
            ),
            says("No he podido abrir la ficha."),
        ),
        raised(
            "zh",
            "The tool's own query has a wrong table name.",
            user("上个月哪款产品退货最多？"),
            asks("top_returns", month="2026-02"),
            raises(
                "java.sql.SQLSyntaxErrorException",
                "Table 'shop.return_recrods' doesn't exist（ReturnsTool.java:52 内置查询）",
            ),
            says("退货统计查不出来。"),
        ),
    ),
    *kind(
        "tools-bad-output",
        Expected("tool"),
        told(
            "en",
            "A server's result does not fit the schema that the server itself declares.",
            user("What is the humidity in greenhouse 2?"),
            asks("read_sensor", sensor="gh2-humidity"),
            gives(
                "MCP error -32600: Structured content does not match the tool's output schema: "
                "data/value must be number"
            ),
            says("The sensor could not be read."),
        ),
        raised(
            "de",
            "The tool cannot parse the JSON that its own script writes.",
            user("Welche Filme laufen heute im Capitol?"),
            asks("kinoprogramm", kino="Capitol", tag="2026-03-13"),
            raises(
                "json.decoder.JSONDecodeError",
                "Ausgabe von parse_programm.js ist kein JSON: Expecting value: line 1 column 1 (char 0)",
            ),
            says("Das Kinoprogramm kann ich nicht anzeigen."),
        ),
        told(
            "es",
            "The tool returns the name of an object in place of its content.",
            user("Dame la dirección de la sede de Bilbao."),
            asks("sede", ciudad="Bilbao"),
            gives("[object Object]"),
            says("La herramienta no me ha devuelto una dirección legible."),
        ),
        raised(
            "ja",
            "The tool reads its own file with the wrong encoding.",
            user("今月の当番表を見せて。"),
            asks("duty_roster", month="2026-03"),
            raises(
                "UnicodeDecodeError",
                (
                    "'utf-8' codec can't decode byte 0x93 in position 0: invalid start byte "
                    "(toban.csv, roster.py 21行目)"
                ),
            ),
            says("当番表を表示できませんでした。"),
        ),
    ),
    *kind(
        "tool-cuts-its-result",
        Expected("tool", "incomplete_result"),
        told(
            "en",
            "The tool returns the first part of a list only, and no way to the rest.",
            user("Which of our 300 branches open on Sundays?"),
            asks("list_branches", filter="all"),
            gives(
                "001 Aberdeen Mon-Sat\n002 Ashford Mon-Sun\n003 Bath Mon-Sat\n[output truncated: 297 "
                "more lines not shown]"
            ),
            says("I only got the first three branches (of these, Ashford opens on Sundays); the list was cut off."),
        ),
        told(
            "de",
            "The tool cuts the text off after some characters.",
            user("Bis wann kann ich laut Vertrag kündigen?"),
            asks("vertragstext", id="V-810"),
            gives(
                "§ 1 Gegenstand … § 7 Laufzeit: Der Vertrag kann mit einer Frist von … [Ausgabe nach "
                "200 Zeichen abgeschnitten]"
            ),
            says("Die Frist steht im Vertrag nicht lesbar."),
        ),
        told(
            "es",
            "The tool returns a part of the rows.",
            user("Suma las ventas de todas las tiendas de ayer."),
            asks("ventas_ayer", tiendas="todas"),
            gives("tienda 1: 410 €\ntienda 2: 388 €\n… (resultado truncado: se muestran 2 de 31 filas)"),
            says("Solo he recibido 2 de las 31 tiendas, así que no puedo darte el total."),
        ),
        told(
            "zh",
            "The tool cuts its result.",
            user("列出所有未续约的客户。"),
            asks("unrenewed", year=2026),
            gives("1. 华联商贸\n2. 东港物流\n……（结果过长，已截断，剩余 88 条未显示）"),
            says("结果被截断了，我只看到两家：华联商贸和东港物流，其余无法列出。"),
        ),
    ),
    *kind(
        "not-implemented",
        Expected("tool", "tool_error"),
        raised(
            "en",
            "The tool's function is a stub.",
            user("Export the address book as vCard."),
            asks("export_contacts", format="vcard"),
            raises("NotImplementedError", "export_contacts: vcard writer not implemented yet"),
            says("The export isn't possible at the moment."),
        ),
        told(
            "de",
            "The tool's method is a stub.",
            user("Storniere die Kinokarten für heute."),
            asks("karten_stornieren", vorstellung="2026-03-13T20:00"),
            gives(
                "System.NotImplementedException: Die Methode oder der Vorgang ist nicht "
                "implementiert.\n   bei Kino.Tools.KartenStornieren()"
            ),
            says("Die Stornierung ließ sich nicht durchführen."),
        ),
        raised(
            "es",
            "The tool's function is a stub.",
            user("Programa el riego para las 6 de la mañana."),
            asks("programar_riego", hora="06:00"),
            raises(
                "scala.NotImplementedError", "an implementation is missing: programarRiego (pendiente de desarrollo)"
            ),
            says("No he podido programar el riego."),
        ),
        told(
            "ja",
            "The tool's function is a stub.",
            user("ビデオ会議の録画を開始して。"),
            asks("start_recording", meeting="m-2291"),
            gives(
                "TODO: start_recording はまだ実装されていません (UnsupportedOperationException at MeetingTool.kt:34)"
            ),
            says("録画を開始できませんでした。"),
        ),
    ),
)

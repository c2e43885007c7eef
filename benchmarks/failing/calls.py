# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Wrong tool calls of the model: names, arguments, identifiers, rules."""

from .model import Case, Expected, Tool, asks, gives, kind, raised, raises, says, system, told, tool, user

CASES: tuple[Case, ...] = (
    *kind(
        "unknown-tool",
        Expected("policy", "unknown_tool"),
        told(
            "en",
            "The model calls a tool it was not told of.",
            user("How old is the bridge in Rio-Antirrio?"),
            asks("web_search", query="Rio-Antirrio bridge opening year"),
            gives("Error: web_search is not a valid tool, try one of [encyclopedia, calculator]."),
            says("I have no means to search for this."),
            tools=(
                tool("encyclopedia", "Look up an article.", title="string"),
                tool("calculator", "Compute.", expression="string"),
            ),
        ),
        raised(
            "de",
            "The model calls a tool it was not told of.",
            user("Rechne 18 % von 2.450 Euro aus und schick es mir als Mail."),
            asks("mail_versenden", text="441 Euro"),
            raises("WerkzeugUnbekannt", "Unbekanntes Werkzeug »mail_versenden«. Verfügbar: rechnen, notiz_anlegen"),
            says("Das Verschicken hat nicht geklappt."),
            tools=(
                tool("rechnen", "Rechnet.", ausdruck="string"),
                tool("notiz_anlegen", "Legt eine Notiz an.", text="string"),
            ),
        ),
        told(
            "es",
            "The model misspells the name of a tool.",
            user("Apaga la luz del pasillo."),
            asks("apagar_luces", zona="pasillo"),
            gives("No existe la herramienta «apagar_luces». Herramientas disponibles: apagar_luz, encender_luz"),
            says("No he podido apagar la luz."),
            tools=(
                tool("apagar_luz", "Apaga una luz.", zona="string"),
                tool("encender_luz", "Enciende una luz.", zona="string"),
            ),
        ),
        raised(
            "zh",
            "The model calls a tool it was not told of.",
            user("给我讲讲今天的头条新闻。"),
            asks("get_news", category="头条"),
            raises("ToolNotFoundError", "未找到名为 get_news 的工具，可用工具：search_wiki"),
            says("暂时无法获取新闻。"),
            tools=(tool("search_wiki", "查百科。", keyword="string"),),
        ),
    ),
    *kind(
        "arguments-break-the-schema",
        Expected("policy", "invalid_arguments"),
        told(
            "en",
            "A required argument is missing.",
            user("Set an alarm for 6:45 tomorrow."),
            asks("set_alarm", label="wake up"),
            gives(
                'MCP error -32602: Invalid arguments for tool set_alarm: [{"code": "invalid_type", '
                '"expected": "string", "received": "undefined", "path": ["time"], '
                '"message": "Required"}]'
            ),
            says("The alarm could not be set."),
            tools=(tool("set_alarm", "Set an alarm.", time="string", label="string?"),),
        ),
        raised(
            "de",
            "A text stands where a number must.",
            user("Bestell drei Pakete Kopierpapier."),
            asks("bestellen", artikel="Kopierpapier", menge="drei"),
            raises(
                "pydantic_core._pydantic_core.ValidationError",
                (
                    "1 validation error for bestellen\nmenge\n  Input should be a valid integer, unable to "
                    "parse string as an integer [type=int_parsing, input_value='drei', input_type=str]"
                ),
            ),
            says("Die Bestellung ist fehlgeschlagen."),
            tools=(tool("bestellen", "Bestellt Büromaterial.", artikel="string", menge="integer"),),
        ),
        raised(
            "es",
            "The arguments have a name the tool does not know.",
            user("Sube la persiana de la cocina."),
            asks("persiana", habitacion="cocina", accion="subir"),
            raises(
                "jsonschema.exceptions.ValidationError",
                "'estancia' is a required property; 'habitacion' was unexpected",
            ),
            says("La persiana no se ha movido."),
            tools=(tool("persiana", "Mueve una persiana.", estancia="string", accion="string"),),
        ),
        told(
            "ja",
            "A text stands where a list must.",
            user("田中さんと佐藤さんを会議に招待して。"),
            asks("invite", meeting_id="m-51", attendees="田中、佐藤"),
            gives("引数エラー: attendees は配列でなければなりません（受け取った型: string）"),
            says("招待できませんでした。"),
            tools=(tool("invite", "会議に招待する。", meeting_id="string", attendees="array"),),
        ),
    ),
    *kind(
        "value-not-accepted",
        Expected("policy", "invalid_arguments"),
        told(
            "en",
            "The model writes a date in a form that the service does not take, though the schema names it.",
            user("Block 4 July for the company picnic."),
            asks("block_day", date="July 4th", reason="company picnic"),
            gives('422 Unprocessable Entity: {"date": ["Enter a valid date in YYYY-MM-DD format."]}'),
            says("The day couldn't be blocked."),
            tools=(tool("block_day", "Block a day; the date is YYYY-MM-DD.", date="string", reason="string"),),
        ),
        raised(
            "de",
            "The model invents a value of an enumeration.",
            user("Stell die Waschmaschine auf Wolle."),
            asks("programm_waehlen", programm="WOLLE_SUPERSCHONEND"),
            raises(
                "java.lang.IllegalArgumentException",
                "No enum constant Waschprogramm.WOLLE_SUPERSCHONEND (erlaubt: BAUMWOLLE, WOLLE, FEIN, KURZ)",
            ),
            says("Das Programm ließ sich nicht einstellen."),
            tools=(
                tool(
                    "programm_waehlen",
                    "Stellt eines der Programme BAUMWOLLE, WOLLE, FEIN und KURZ ein.",
                    programm="string",
                ),
            ),
        ),
        told(
            "es",
            "The model passes a currency by its name.",
            user("Pásame 120 dólares a euros."),
            asks("convertir", cantidad=120, de="dólares", a="euros"),
            gives(
                "400 Bad Request: el parámetro «de» debe ser un código ISO 4217 de tres letras (p. ej. "
                "USD); recibido: «dólares»"
            ),
            says("No he podido hacer la conversión."),
            tools=(
                Tool(
                    "convertir",
                    "Convierte entre divisas dadas por su código ISO 4217.",
                    {
                        "type": "object",
                        "properties": {
                            "cantidad": {"type": "number"},
                            "de": {"type": "string"},
                            "a": {"type": "string"},
                        },
                        "required": ["cantidad", "de", "a"],
                    },
                ),
            ),
        ),
        raised(
            "zh",
            "The model passes a page size above the limit that the tool names.",
            user("把最近的评论全列出来。"),
            asks("list_comments", page=1, page_size=10000),
            raises("InvalidParameterException", "参数 page_size 取值范围为 1-100，当前值 10000"),
            says("评论没有取到。"),
            tools=(tool("list_comments", "列出评论，每页最多 100 条。", page="integer", page_size="integer"),),
        ),
    ),
    *kind(
        "invented-identifier",
        Expected("policy", "invented_data"),
        told(
            "en",
            "Nobody gave the customer id that the model uses.",
            user("Change my delivery address to 9 Elm Court, please."),
            asks("update_address", customer_id="CUST-12345", address="9 Elm Court"),
            gives('{"error": "Customer CUST-12345 not found"}'),
            says("Your address could not be changed."),
        ),
        raised(
            "de",
            "Nobody gave the booking number that the model uses.",
            user("Ich möchte meine Reise an die Ostsee um eine Woche verschieben."),
            asks("reise_verschieben", buchung="ABC123", tage=7),
            raises("BuchungNichtGefunden", "Die Buchung ABC123 existiert nicht."),
            says("Die Reise ließ sich nicht verschieben."),
        ),
        told(
            "es",
            "Nobody gave the file id that the model uses.",
            user("Comparte con Lucía la hoja de gastos."),
            asks("compartir", archivo_id="1a2b3c4d5e6f", correo="lucia@empresa.example"),
            gives("404: no se encontró el archivo con id 1a2b3c4d5e6f"),
            says("No he podido compartir la hoja."),
        ),
        raised(
            "ja",
            "Nobody gave the patient number that the model uses.",
            user("母の次の診察の予約を確認したいのですが。"),
            asks("next_visit", patient_id="P-00001"),
            raises("NotFoundException", "患者ID P-00001 は存在しません"),
            says("予約を確認できませんでした。"),
        ),
    ),
    *kind(
        "rule-refuses",
        Expected("policy", "refused_action"),
        told(
            "en",
            "The model cancels a ticket that the rules it was given do not let it cancel.",
            system("Basic economy tickets cannot be cancelled after 24 hours. Never cancel them; offer a voucher."),
            user("Cancel my basic economy ticket HKD22P, I bought it last week."),
            asks("cancel_ticket", ticket="HKD22P"),
            gives("Error: cancellation not allowed: fare BASIC, purchased more than 24 hours ago"),
            says("I tried to cancel your ticket but it did not work."),
        ),
        raised(
            "de",
            "The model books a discount above what its rules allow.",
            system("Du darfst höchstens 10 % Rabatt geben. Mehr genehmigt nur die Filialleitung."),
            user("Der Tisch hat einen Kratzer, was können Sie da machen?"),
            asks("rabatt_buchen", artikel="Tisch Ilse", prozent=40),
            raises(
                "RegelverletzungException",
                "Rabatt von 40 % nicht zulässig: Obergrenze ohne Freigabe der Filialleitung ist 10 %.",
            ),
            says("Der Rabatt konnte nicht gebucht werden."),
        ),
        told(
            "es",
            "The model changes an account without the check that its rules ask for.",
            system("No cambies datos bancarios sin verificar antes la identidad con verificar_identidad."),
            user("Cambia la cuenta donde me pagáis la nómina: ES12 0000 1111."),
            asks("cambiar_cuenta", iban="ES12 0000 1111"),
            gives("Acción rechazada: la identidad del cliente no ha sido verificada en esta conversación."),
            says("No se ha podido cambiar la cuenta."),
        ),
        raised(
            "zh",
            "The model approves a claim above its limit.",
            system("单笔超过 500 元的赔付必须转人工，不得自行批准。"),
            user("我的快递丢了，里面的手机值 3000 元，请赔偿。"),
            asks("approve_claim", claim="K-7781", amount=3000),
            raises("PolicyViolationError", "违反业务规则：单笔赔付超过 500 元须人工审批，操作被拒绝"),
            says("赔付申请没有成功。"),
        ),
    ),
    *kind(
        "arguments-not-json",
        Expected("policy"),
        told(
            "en",
            "The model's arguments end in the middle of the JSON text.",
            user("Add milk, eggs and flour to the shopping list."),
            asks("add_items", '{"items": ["milk", "eggs", "flour"'),
            gives("Error: failed to parse tool arguments as JSON: Expecting ',' delimiter: line 1 column 37 (char 36)"),
            says("The list was not changed."),
            tools=(tool("add_items", "Add to the shopping list.", items="array"),),
        ),
        raised(
            "de",
            "The model writes its arguments as a Python literal.",
            user("Merk dir, dass ich keine Nüsse esse."),
            asks("merken", "{'text': 'isst keine Nüsse', 'dauerhaft': True}"),
            raises(
                "System.Text.Json.JsonException",
                (
                    "Die Argumente des Modells sind kein gültiges JSON: ''' ist ein ungültiger Anfang "
                    "eines Eigenschaftsnamens. LineNumber: 0 | BytePositionInLine: 1."
                ),
            ),
            says("Das habe ich mir leider nicht merken können."),
            tools=(tool("merken", "Merkt sich etwas.", text="string", dauerhaft="boolean"),),
        ),
        told(
            "es",
            "The model wraps its arguments in prose.",
            user("Pon música tranquila en el salón."),
            asks("reproducir", 'Claro, aquí tienes: {"estilo": "tranquila", "sala": "salón"}'),
            gives(
                "No se pudieron interpretar los argumentos generados por el modelo: Unexpected token "
                "'C' is not valid JSON"
            ),
            says("No ha sonado nada."),
            tools=(tool("reproducir", "Reproduce música.", estilo="string", sala="string"),),
        ),
        raised(
            "ja",
            "The model's arguments lack a closing quote.",
            user("ToDoに「歯医者を予約」を追加して。"),
            asks("add_todo", '{"title": "歯医者を予約}'),
            raises(
                "com.fasterxml.jackson.core.io.JsonEOFException",
                (
                    "モデルが生成した引数を解析できません: Unexpected end-of-input: was expecting closing "
                    "quote for a string value"
                ),
            ),
            says("追加できませんでした。"),
            tools=(tool("add_todo", "ToDoを追加する。", title="string"),),
        ),
    ),
    *kind(
        "edit-without-a-match",
        Expected("policy"),
        told(
            "en",
            "The model wants to replace a text that the file it has just read does not hold.",
            user("Rename the variable total to amount in cart.py."),
            asks("view", path="cart.py"),
            gives("1\tdef price(items):\n2\t    total = sum(items)\n3\t    return total"),
            asks(
                "str_replace",
                path="cart.py",
                old_str="def price(cart):\n    total = 0",
                new_str="def price(cart):\n    amount = 0",
            ),
            gives(
                "No replacement was performed, old_str `def price(cart):\n    total = 0` did not "
                "appear verbatim in cart.py."
            ),
            says("I wasn't able to rename the variable."),
        ),
        raised(
            "de",
            "The model's patch does not fit the file it has read.",
            user("Ändere in der Konfiguration den Port auf 8081."),
            asks("datei_lesen", pfad="server.toml"),
            gives('[server]\nhost = "0.0.0.0"\nport = 8080'),
            asks("patch", datei="server.toml", diff="@@ -9,1 +9,1 @@\n-Port: 8080\n+Port: 8081"),
            raises("PatchError", "Hunk 1 fehlgeschlagen: die Zeile »Port: 8080« kommt in server.toml nicht vor"),
            says("Der Port ist nicht geändert."),
        ),
        told(
            "es",
            "The model names an element that the page it was shown does not have.",
            user("Inicia la compra en esta tienda."),
            asks("ver_pagina", url="https://tienda.example/cesta"),
            gives('<button id="tramitar">Tramitar pedido</button>'),
            asks("pulsar", selector="#checkout-button"),
            gives("Ningún elemento de la página coincide con el selector «#checkout-button»."),
            says("No he podido iniciar la compra."),
        ),
        raised(
            "zh",
            "The model names a sheet that the workbook it has listed does not have.",
            user("算一下第一季度的支出总和。"),
            asks("list_sheets", file="开支.xlsx"),
            gives("工作表：一季度、二季度"),
            asks("sum_column", file="开支.xlsx", sheet="Sheet1", column="B"),
            raises("KeyError", "'Worksheet Sheet1 does not exist.'"),
            says("没有算出来。"),
        ),
    ),
)

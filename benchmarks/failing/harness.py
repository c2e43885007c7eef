# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Failures of the program around the model."""

from .model import Case, Expected, Fault, asks, gives, kind, raised, raises, says, told, tool, user

CASES: tuple[Case, ...] = (
    *kind(
        "program-crash",
        Expected("harness", "harness_crash"),
        raised(
            "en",
            "The agent's loop trips over a key after a good tool result.",
            user("What's the status of ticket OPS-311?"),
            asks("get_ticket", key="OPS-311"),
            gives('{"key": "OPS-311", "status": "In review", "assignee": "dana"}'),
            crash=Fault("KeyError", "'choices'"),
        ),
        raised(
            "de",
            "The program cannot write a tool's answer into its own state.",
            user("Wann wurde die Heizung zuletzt gewartet?"),
            asks("wartungen", anlage="Heizung"),
            gives("letzte Wartung: 14.10.2025, Firma Wendt"),
            crash=Fault(
                "System.InvalidCastException",
                'Das Objekt des Typs "AgentState" kann nicht in Typ "ConversationState" umgewandelt werden.',
            ),
        ),
        raised(
            "es",
            "The program cannot store the conversation in its own file.",
            user("¿Qué platos llevan gluten en el menú del viernes?"),
            asks("menu", dia="viernes"),
            gives("Crema de calabaza; lasaña (gluten); flan"),
            crash=Fault("TypeError", "Object of type datetime is not JSON serializable"),
        ),
        raised(
            "zh",
            "The program's callback after the answer is broken.",
            user("帮我算一下 3 月份的加班时长。"),
            asks("overtime", month="2026-03"),
            gives("合计 14.5 小时"),
            says("您 3 月份的加班时长合计 14.5 小时。"),
            crash=Fault(
                "AttributeError",
                "'NoneType' object has no attribute 'append'（/app/agent/runner.py，第 88 行，on_answer）",
            ),
        ),
        reward=None,
    ),
    *kind(
        "result-not-handed-back",
        Expected("harness", "missing_result"),
        told(
            "en",
            "The tool answered; the model's next call does not have the answer.",
            user("What time does the pharmacy on Mill Street close?"),
            asks("opening_hours", place="Mill Street Pharmacy"),
            gives("Mon-Fri 08:30-18:00", handed_back=False),
            says("I haven't received the opening hours, so I can't tell you when it closes."),
        ),
        told(
            "de",
            "The program hands an empty text to the model instead of the result.",
            user("Wie viele Anmeldungen hat der Yogakurs?"),
            asks("anmeldungen", kurs="Yoga"),
            gives('{"anmeldungen": 14, "plaetze": 16}', seen=""),
            says("Zur Zahl der Anmeldungen liegt mir nichts vor."),
        ),
        told(
            "es",
            "The tool answered; the model's next call does not have the answer.",
            user("¿Qué temperatura hay en la cámara 3?"),
            asks("temperatura", camara=3),
            gives("-18,4 °C", handed_back=False),
            says("No he recibido ninguna lectura de la cámara 3."),
        ),
        told(
            "ja",
            "The tool answered; the model's next call does not have the answer.",
            user("第2会議室は15時から空いていますか。"),
            asks("room_status", room="第2会議室", time="15:00"),
            gives("15:00-16:00 空き", handed_back=False),
            says("会議室の空き状況を取得できませんでした。"),
        ),
    ),
    *kind(
        "no-handler",
        Expected("harness"),
        told(
            "en",
            "The model was offered a tool that the program has no function for.",
            user("Translate 'good evening' into Danish."),
            asks("translate", text="good evening", target="da"),
            gives(
                "Error: tool 'translate' is advertised to the model but no handler is registered for it in ToolRegistry"
            ),
            says("I can't use the translator here."),
            tools=(tool("translate", "Translate a text.", text="string", target="string"),),
        ),
        raised(
            "de",
            "The dispatcher lacks a function for a tool that the model was offered.",
            user("Drucke den Lieferschein 5512 aus."),
            asks("drucken", beleg=5512),
            raises(
                "DispatchException",
                "Für das angebotene Werkzeug »drucken« ist im Agentenprogramm keine Funktion hinterlegt.",
            ),
            says("Der Lieferschein konnte nicht gedruckt werden."),
            tools=(tool("drucken", "Druckt einen Beleg.", beleg="integer"),),
        ),
        raised(
            "es",
            "The program calls the tool's function with arguments of its own that are wrong.",
            user("Calcula la letra del DNI 12345678."),
            asks("letra_dni", numero="12345678"),
            raises(
                "TypeError",
                (
                    "AgentRunner._dispatch() got an unexpected keyword argument 'session_ctx' al ejecutar "
                    "la herramienta letra_dni"
                ),
            ),
            says("No he podido calcular la letra."),
            tools=(tool("letra_dni", "Letra de un DNI.", numero="string"),),
        ),
        told(
            "zh",
            "The program did not bind the tool that it offers.",
            user("把会议室的空调调到 24 度。"),
            asks("set_aircon", room="会议室", celsius=24),
            gives("调度器错误：工具 set_aircon 已声明但程序未绑定实现函数（dispatcher.handlers 中缺失）"),
            says("空调没有调成功。"),
            tools=(tool("set_aircon", "设置空调温度。", room="string", celsius="integer"),),
        ),
    ),
    *kind(
        "loop-never-ran-the-tool",
        Expected("harness", "missing_result"),
        told(
            "en",
            "The program ends after the model asked for a tool; the tool never ran.",
            user("Cancel my gym class on Friday."),
            asks("cancel_class", day="Friday"),
        ),
        told(
            "de",
            "The program ends after the model asked for a tool; the tool never ran.",
            user("Stell die Rollläden im Wohnzimmer auf halb."),
            asks("rollladen", raum="Wohnzimmer", prozent=50),
        ),
        told(
            "es",
            "The program ends after the model asked for a tool; the tool never ran.",
            user("Recarga 10 euros en mi móvil."),
            asks("recargar", numero="600123456", euros=10),
        ),
        told(
            "ja",
            "The program ends after the model asked for a tool; the tool never ran.",
            user("タクシーを会社の前に呼んで。"),
            asks("call_taxi", place="会社前"),
        ),
        reward=None,
    ),
)

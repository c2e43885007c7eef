# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Streams of the model's answer that end early or that nobody recorded."""

from .model import Case, Expected, Fault, asks, breaks_off, gives, kind, raised, told, unseen, user

CASES: tuple[Case, ...] = (
    *kind(
        "stream-broken",
        Expected("environment"),
        raised(
            "en",
            "The provider closes the stream in the middle.",
            user("Write a bedtime story about a lighthouse."),
            breaks_off(
                "Once upon a time, on a rock far out in the grey sea, there stood a lighthouse that",
                fault=Fault(
                    "httpx.RemoteProtocolError",
                    "peer closed connection without sending complete message body (incomplete chunked read)",
                ),
            ),
        ),
        raised(
            "de",
            "The connection to the provider breaks in the middle of the stream.",
            user("Schreib einen Nachruf auf unseren Vereinsgründer Otto Brehm."),
            breaks_off(
                "Mit großer Trauer nehmen wir Abschied von",
                fault=Fault("System.Net.Http.HttpIOException", "Die Antwort endete vorzeitig. (ResponseEnded)"),
            ),
        ),
        raised(
            "es",
            "The provider's stream ends before its last part.",
            user("Escribe un discurso corto para la boda de mi hermana."),
            breaks_off(
                "Queridos amigos, hoy celebramos",
                fault=Fault(
                    "aiohttp.client_exceptions.ClientPayloadError",
                    (
                        "Response payload is not completed: <TransferEncodingError: 400, message='Not enough "
                        "data to satisfy transfer length header.'>"
                    ),
                ),
            ),
        ),
        raised(
            "ja",
            "The provider's stream ends before its last part.",
            user("新入社員への歓迎のあいさつ文を書いて。"),
            breaks_off(
                "皆さん、入社おめでとうございます。これから",
                fault=Fault(
                    "java.io.EOFException",
                    "ストリームが途中で終了しました: unexpected end of stream on https://model.example/...",
                ),
            ),
        ),
        reward=None,
    ),
    *kind(
        "stream-given-up",
        Expected("harness", "incomplete_stream"),
        raised(
            "en",
            "The app's generator is closed before the stream ends.",
            user("List the planets with their moons."),
            breaks_off("Mercury has no moons. Venus has no moons. Earth has one", fault=Fault("GeneratorExit", "")),
        ),
        told(
            "de",
            "The app stops reading after the first sentence; the span just ends.",
            user("Beschreib den Weg vom Bahnhof zum Museum."),
            breaks_off("Vom Bahnhof gehen Sie zuerst"),
        ),
        raised(
            "es",
            "The app leaves the stream's context early.",
            user("Hazme un plan de entrenamiento de cuatro semanas."),
            breaks_off(
                "Semana 1: lunes, carrera suave de 20",
                fault=Fault("StreamConsumed", "la aplicación cerró el flujo antes de leerlo entero"),
            ),
        ),
        told(
            "zh",
            "The app stops reading after a few words; the span just ends.",
            user("讲讲茶叶的六大分类。"),
            breaks_off("茶叶按照发酵程度可以分为绿茶、白"),
        ),
        reward=None,
    ),
    *kind(
        "stream-unseen",
        Expected("unknown"),
        told(
            "en", "The low reward may be due to an answer that nobody recorded.", user("What is 17 times 23?"), unseen()
        ),
        told(
            "de",
            "The low reward may be due to an answer that nobody recorded.",
            user("Nenne mir die Hauptstadt von Burkina Faso."),
            unseen(),
        ),
        told(
            "es",
            "A tool worked; the streamed answer to it was not recorded.",
            user("¿Cuántas vacaciones me quedan?"),
            asks("saldo_vacaciones", empleado="E-204"),
            gives('{"dias_restantes": 11}'),
            unseen(),
        ),
        told(
            "zh",
            "A tool worked; the streamed answer to it was not recorded.",
            user("我这个月的话费是多少？"),
            asks("bill", phone="13800001234", month="2026-02"),
            gives("本月账单：58.40 元"),
            unseen(),
        ),
    ),
    *kind(
        "stream-unseen-well",
        Expected(""),
        told(
            "en",
            "The answer was streamed past the recorder; the episode succeeded.",
            user("Convert 5 miles to kilometres."),
            unseen(),
        ),
        told(
            "de",
            "The answer was streamed past the recorder; the episode succeeded.",
            user("Wie schreibt man »Rhythmus«?"),
            unseen(),
        ),
        told(
            "es",
            "The answer was streamed past the recorder; the episode succeeded.",
            user("¿A qué hora sale el último tren a Toledo?"),
            asks("horario", destino="Toledo"),
            gives("último tren: 21:50"),
            unseen(),
        ),
        told(
            "ja",
            "The answer was streamed past the recorder; the episode succeeded.",
            user("明日の日の出は何時ですか。"),
            asks("sunrise", city="東京", date="2026-03-14"),
            gives("05:55"),
            unseen(),
        ),
        reward=1.0,
    ),
)

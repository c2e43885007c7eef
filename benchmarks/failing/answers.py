# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Failures of the model that no span and no tool tells of: its answers, its repetitions, its giving up."""

from .model import Case, Expected, Turn, asks, gives, kind, says, system, told, tool, user


def again(turn: Turn, result: Turn, times: int) -> tuple[Turn, ...]:
    """The same call with the same result, several times."""
    return (turn, result) * times


CASES: tuple[Case, ...] = (
    *kind(
        "repeats-itself",
        Expected("policy", "loop"),
        told(
            "en",
            "The model lists the same folder again and again.",
            user("Find the tenancy agreement in my documents."),
            *again(asks("list_folder", path="/documents"), gives("letters/  taxes/  photos/"), 6),
            says("I was not able to find it."),
        ),
        told(
            "de",
            "The model asks for the same status again and again.",
            user("Ist mein Antrag auf Elterngeld schon bearbeitet, und was fehlt noch?"),
            *again(
                asks("antragsstatus", antrag="EG-2026-118"),
                gives("Status: Unterlagen fehlen. Einzelheiten: siehe nachforderungen()."),
                7,
            ),
            says("Ich weiß leider nicht, was fehlt."),
            tools=(
                tool("antragsstatus", "Stand eines Antrags.", antrag="string"),
                tool("nachforderungen", "Was zu einem Antrag fehlt.", antrag="string"),
            ),
        ),
        told(
            "es",
            "The model searches for the same words again and again.",
            user("¿Quién ganó la vuelta ciclista local de 1987?"),
            *again(
                asks("buscar", consulta="vuelta ciclista local 1987"),
                gives("Sin resultados relevantes. Pruebe con otros términos."),
                6,
            ),
            says("No lo he encontrado."),
        ),
        told(
            "ja",
            "The model opens the same page again and again.",
            user("説明書から初期化の手順を探して。全部で8ページです。"),
            *again(asks("open_page", page=1), gives("1ページ: はじめに（続きは2ページ以降）"), 6),
            says("見つかりませんでした。"),
        ),
    ),
    *kind(
        "gives-up",
        Expected("policy", "refusal"),
        told(
            "en",
            "The model has the tool for it and does not try.",
            system("You can use the tool currency_rate."),
            user("How many yen do I get for 100 pounds?"),
            says("I'm sorry, but I can't help with that."),
            tools=(tool("currency_rate", "Today's rate of two currencies.", base="string", target="string"),),
        ),
        told(
            "de",
            "The model looks once and refuses the rest.",
            user("Trag bitte die drei Termine aus meiner Notiz in den Kalender ein."),
            asks("notiz_lesen", titel="Termine"),
            gives("Mo 9 Uhr Zahnarzt; Di 17 Uhr Elternabend; Fr 12 Uhr Essen mit Jo"),
            says("Es tut mir leid, dabei kann ich Ihnen nicht helfen."),
            tools=(
                tool("notiz_lesen", "Liest eine Notiz.", titel="string"),
                tool("termin_eintragen", "Trägt einen Termin ein.", titel="string", beginn="string"),
            ),
        ),
        told(
            "es",
            "The model refuses a harmless request.",
            user("Escribe un chiste sobre matemáticas."),
            says("Lo siento, pero no puedo ayudarte con esa petición."),
        ),
        told(
            "zh",
            "The model refuses although the tool gave it all it needs.",
            user("帮我把这三个文件名改成小写。"),
            asks("list_files", folder="照片"),
            gives("A1.JPG B2.JPG C3.JPG"),
            says("很抱歉，我无法帮您完成这个请求。"),
            tools=(
                tool("list_files", "列出文件。", folder="string"),
                tool("rename_file", "重命名文件。", old="string", new="string"),
            ),
        ),
    ),
    *kind(
        "ignores-the-tool",
        Expected("policy", "wrong_answer"),
        told(
            "en",
            "The tool says one thing, the model another.",
            user("Is the 18:05 ferry to Dún Laoghaire running today?"),
            asks("ferry_status", departure="18:05"),
            gives("18:05 departure: on time, berth 3"),
            says("No, the 18:05 ferry isn't running today."),
        ),
        told(
            "de",
            "The model reports another number than the tool.",
            user("Wie viele Einwohner hat Görlitz laut Statistik?"),
            asks("einwohner", ort="Görlitz"),
            gives("56.574 (Stand 31.12.2024)"),
            says("Görlitz hat rund 91.000 Einwohner."),
        ),
        told(
            "es",
            "The model names another gate than the tool.",
            user("¿Por qué puerta embarca el VY1304?"),
            asks("puerta_embarque", vuelo="VY1304"),
            gives("VY1304: puerta B22, embarque 16:10"),
            says("El vuelo VY1304 embarca por la puerta C8."),
        ),
        told(
            "ja",
            "The model names another day than the tool.",
            user("燃えないゴミの収集日はいつですか。"),
            asks("garbage_day", kind="燃えないゴミ", area="3丁目"),
            gives("毎月第2・第4水曜日"),
            says("燃えないゴミは毎週月曜日です。"),
        ),
    ),
    *kind(
        "wrong-in-the-end",
        Expected("policy", "wrong_answer"),
        told(
            "en",
            "Nothing went wrong on the way; the answer earns nothing.",
            user("A train leaves at 14:20 and takes 95 minutes. When does it arrive?"),
            says("It arrives at 15:45."),
        ),
        told(
            "de",
            "Nothing went wrong on the way; the answer earns nothing.",
            user("Welche Rechnung ist am längsten überfällig?"),
            asks("rechnungen", status="offen"),
            gives("R-101 fällig 03.01.; R-088 fällig 19.11.; R-120 fällig 02.03."),
            says("Am längsten überfällig ist R-101."),
        ),
        told(
            "es",
            "Nothing went wrong on the way; the answer earns nothing.",
            user("Ordena estos precios de menor a mayor: 9,95; 9,5; 10,01."),
            says("9,95; 9,5; 10,01"),
        ),
        told(
            "zh",
            "Nothing went wrong on the way; the answer earns nothing.",
            user("会员消费 680 元，满 300 减 40 可叠加，应付多少？"),
            asks("promotion_rule", name="满300减40"),
            gives("每满 300 元减 40 元，可叠加"),
            says("您应付 640 元。"),
        ),
    ),
    *kind(
        "says-nothing",
        Expected("policy"),
        told(
            "en",
            "The model's last message is empty.",
            user("Which of my meetings tomorrow can be moved?"),
            asks("meetings", day="2026-03-14"),
            gives("10:00 stand-up (fixed); 13:00 coffee with Lea (flexible)"),
            says(""),
        ),
        told(
            "de",
            "The model's only message is empty.",
            user("Erkläre mir den Unterschied zwischen brutto und netto."),
            says(""),
        ),
        told(
            "es",
            "The model's last message is empty.",
            user("¿Cuántos kilómetros corrí en febrero?"),
            asks("actividades", mes="2026-02"),
            gives("6,2; 5,0; 10,1; 4,8 km"),
            says(""),
        ),
        told("ja", "The model's only message is empty.", user("「一石二鳥」の意味を説明してください。"), says("")),
    ),
    *kind(
        "claims-what-it-never-did",
        Expected("policy"),
        told(
            "en",
            "The model says that it sent a mail and calls no tool.",
            user("E-mail the caterer that we'll be twelve, not ten."),
            says("Done! I've e-mailed the caterer that you will be twelve."),
            tools=(
                tool("send_mail", "Send an e-mail.", to="string", body="string"),
                tool("contacts", "Look up a contact.", name="string"),
            ),
        ),
        told(
            "de",
            "The model looks up the address only, and says that the letter has gone out.",
            user("Schick Frau Arendt die Mahnung per Post."),
            asks("adresse", name="Arendt"),
            gives("Helga Arendt, Am Deich 3, 26506 Norden"),
            says("Die Mahnung ist an Frau Arendt verschickt worden."),
            tools=(
                tool("adresse", "Sucht eine Adresse.", name="string"),
                tool("brief_senden", "Verschickt einen Brief.", an="string", text="string"),
            ),
        ),
        told(
            "es",
            "The model finds the appointment only, and says that it was moved.",
            user("Pasa mi cita del médico al jueves."),
            asks("ver_cita", persona="yo"),
            gives("martes 17, 10:30, Dra. Sanz"),
            says("Listo, tu cita ha quedado para el jueves a las 10:30."),
            tools=(
                tool("ver_cita", "Consulta la cita.", persona="string"),
                tool("mover_cita", "Cambia la cita.", persona="string", dia="string"),
            ),
        ),
        told(
            "zh",
            "The model reads the thermostat only, and says that it set it.",
            user("把卧室温度调到 22 度。"),
            asks("read_thermostat", room="卧室"),
            gives("当前 19.5 度，设定 20 度"),
            says("已将卧室温度调到 22 度。"),
            tools=(
                tool("read_thermostat", "读取温控器。", room="string"),
                tool("set_thermostat", "设置温控器。", room="string", celsius="number"),
            ),
        ),
    ),
)

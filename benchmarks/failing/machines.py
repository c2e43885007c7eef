# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Failures of the machine that a tool runs on: its files, its disk, its memory, its database."""

from .model import Case, Expected, asks, gives, kind, raised, raises, says, told, user

CASES: tuple[Case, ...] = (
    *kind(
        "file-permission",
        Expected("environment", "permission_denied"),
        raised(
            "en",
            "The tool's process may not write the report folder.",
            user("Save the meeting notes to the shared reports folder."),
            asks("save_note", title="Board meeting", folder="reports"),
            raises("PermissionError", "[Errno 13] Permission denied: '/srv/reports/board-meeting.md'"),
            says("The notes could not be saved."),
        ),
        told(
            "de",
            "The service may not open a log file.",
            user("Wann ist der Druckdienst zuletzt gestartet worden?"),
            asks("dienstprotokoll", dienst="druck"),
            gives('Der Zugriff auf den Pfad "C:\\ProgramData\\Druck\\druck.log" wurde verweigert.'),
            says("Ich kann das Protokoll nicht einsehen."),
        ),
        told(
            "es",
            "The tool may not make a folder.",
            user("Crea una carpeta de proyecto para el cliente Vega."),
            asks("crear_proyecto", cliente="Vega"),
            gives("mkdir: no se puede crear el directorio «/datos/proyectos/vega»: Permiso denegado"),
            says("No he podido crear la carpeta."),
        ),
        raised(
            "zh",
            "The tool's process may not read the backups.",
            user("昨晚的备份有多大？"),
            asks("backup_size", day="2026-03-11"),
            raises("java.nio.file.AccessDeniedException", "/backup/2026-03-11：权限不够"),
            says("没有办法查看备份大小。"),
        ),
    ),
    *kind(
        "disk-full",
        Expected("environment"),
        told(
            "en",
            "No space is left where the tool renders its video.",
            user("Cut the first 20 seconds off the product video."),
            asks("trim_video", file="product.mp4", start_s=20),
            gives(
                "av_interleaved_write_frame(): No space left on device\nError writing trailer of "
                "/tmp/out/product-trim.mp4: No space left on device"
            ),
            says("The video could not be cut."),
        ),
        raised(
            "de",
            "The archive's disk is full.",
            user("Archiviere bitte alle Mails aus dem Jahr 2024."),
            asks("mails_archivieren", jahr=2024),
            raises(
                "System.IO.IOException",
                "Es steht nicht genug Speicherplatz auf dem Datenträger zur Verfügung. : 'D:\\Archiv\\2024.pst'",
            ),
            says("Die Mails konnten nicht archiviert werden."),
        ),
        raised(
            "es",
            "The database has no space left.",
            user("Importa el catálogo de primavera."),
            asks("importar_catalogo", catalogo="primavera-2026"),
            raises(
                "psycopg.errors.DiskFull",
                (
                    "ERROR:  no se pudo extender el archivo «base/16384/24590»: No queda espacio en el "
                    "dispositivo\nHINT:  Verifique el espacio libre en disco."
                ),
            ),
            says("El catálogo no se ha podido importar."),
        ),
        told(
            "ja",
            "The disk for exports is full.",
            user("今日のセンサー値をCSVに書き出して。"),
            asks("export_csv", day="2026-03-12", sensor="all"),
            gives("書き込みに失敗しました: デバイスに空き領域がありません (/var/export/2026-03-12.csv)"),
            says("CSVに書き出せませんでした。"),
        ),
    ),
    *kind(
        "database-busy",
        Expected("environment"),
        raised(
            "en",
            "Another process holds the database file.",
            user("Mark my task 'renew passport' as done."),
            asks("complete_task", title="renew passport"),
            raises("sqlite3.OperationalError", "database is locked"),
            says("I could not mark the task as done."),
        ),
        told(
            "de",
            "Two transactions lock each other out.",
            user("Buche 12 Stück von Artikel 7781 aus dem Lager aus."),
            asks("ausbuchen", artikel=7781, menge=12),
            gives(
                "FEHLER:  Verklemmung entdeckt\nDETAIL:  Prozess 2114 wartet auf ShareLock-Sperre auf "
                "Transaktion 88213; blockiert von Prozess 2109."
            ),
            says("Die Ausbuchung hat nicht geklappt."),
        ),
        raised(
            "es",
            "Waiting for a lock takes too long.",
            user("Cambia el turno de Marta al sábado."),
            asks("cambiar_turno", empleado="Marta", dia="sábado"),
            raises("pymysql.err.OperationalError", "(1205, 'Lock wait timeout exceeded; try restarting transaction')"),
            says("No se ha podido cambiar el turno."),
        ),
        told(
            "zh",
            "Another session has locked the row.",
            user("把会员 10086 的积分加 200。"),
            asks("add_points", member="10086", points=200),
            gives("更新失败：ORA-00054: 资源正忙, 但指定以 NOWAIT 方式获取资源, 或者超时失效"),
            says("积分没有加上，数据库正忙。"),
        ),
    ),
    *kind(
        "out-of-memory",
        Expected("environment"),
        told(
            "en",
            "The sandbox kills a worker that has too little memory.",
            user("Convert the scanned archive to searchable text."),
            asks("ocr_archive", archive="scans-2019.zip"),
            gives("Worker terminated: container ocr-7f9c was OOMKilled (exit code 137, memory limit 512Mi)"),
            says("The archive could not be converted."),
        ),
        told(
            "de",
            "The node evicts the job for want of memory.",
            user("Rechne den Monatsabschluss für Januar."),
            asks("monatsabschluss", monat="2026-01"),
            gives(
                "Auftrag abgebrochen: Pod wurde verdrängt (Evicted), Grund: Knoten hatte zu wenig "
                "Speicher (MemoryPressure)"
            ),
            says("Der Monatsabschluss ist abgebrochen worden."),
        ),
        raised(
            "es",
            "The node has no memory left.",
            user("Genera el mapa de calor de las visitas de marzo."),
            asks("mapa_calor", mes="2026-03"),
            raises("OSError", "[Errno 12] No se pudo asignar memoria"),
            says("No he podido generar el mapa."),
        ),
        raised(
            "ja",
            "Another process has the image server's GPU memory.",
            user("この写真の背景を消して。ファイルはneko.pngです。"),
            asks("remove_background", file="neko.png"),
            raises(
                "torch.OutOfMemoryError",
                (
                    "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 15.77 "
                    "GiB of which 31.12 MiB is free. Process 4120 has 15.1 GiB memory in use."
                ),
            ),
            says("画像処理サーバーの都合で背景を消せませんでした。"),
        ),
    ),
)

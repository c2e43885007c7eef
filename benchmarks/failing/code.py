# ruff: noqa: RUF001 - Chinese and Japanese texts have their own punctuation
"""Wrong code of the model: queries, programs and commands that it wrote itself."""

from .model import Case, Expected, asks, gives, kind, raised, raises, says, told, user

CASES: tuple[Case, ...] = (
    *kind(
        "models-query",
        Expected("policy", "invalid_code"),
        told(
            "en",
            "The model's SQL names a column that the schema it has read does not have.",
            user("Who are our five biggest customers by revenue?"),
            asks("describe_table", table="invoices"),
            gives("id integer, customer text, net_amount numeric, issued date"),
            asks(
                "run_sql", query="SELECT customer, SUM(revenue) FROM invoices GROUP BY customer ORDER BY 2 DESC LIMIT 5"
            ),
            gives(
                'ERROR:  column "revenue" does not exist\nLINE 1: SELECT customer, SUM(revenue) FROM '
                "invoices GROUP BY ...\n                             ^"
            ),
            says("I couldn't work out the biggest customers."),
        ),
        raised(
            "de",
            "The model's SQL is not grouped rightly.",
            user("Wie viele Bestellungen gab es je Monat?"),
            asks("sql", abfrage="SELECT monat, ort, COUNT(*) FROM bestellungen GROUP BY monat"),
            raises(
                "psycopg.errors.GroupingError",
                (
                    "FEHLER:  Spalte »bestellungen.ort« muss in der GROUP-BY-Klausel erscheinen oder in "
                    "einer Aggregatfunktion verwendet werden"
                ),
            ),
            says("Die Auswertung ist nicht gelungen."),
        ),
        told(
            "es",
            "The model's SQL has a comma too many.",
            user("¿Cuántos alumnos hay por curso?"),
            asks("consulta_sql", sql="SELECT curso, COUNT(*), FROM alumnos GROUP BY curso"),
            gives(
                "ERROR:  error de sintaxis en o cerca de «FROM»\nLÍNEA 1: SELECT curso, COUNT(*), FROM "
                "alumnos GROUP BY curso"
            ),
            says("No he podido contarlos."),
        ),
        raised(
            "ja",
            "The model's query uses a table that does not exist.",
            user("先月の来店者数を日別に出して。"),
            asks("execute_query", sql="SELECT 日付, COUNT(*) FROM visits_log GROUP BY 日付"),
            raises("psycopg.errors.UndefinedTable", 'ERROR:  リレーション"visits_log"は存在しません'),
            says("集計できませんでした。"),
        ),
    ),
    *kind(
        "models-script",
        Expected("policy", "invalid_code"),
        told(
            "en",
            "The model's Python uses a name that it never set.",
            user("What is the median of 3, 9, 4, 11 and 7?"),
            asks("python", code="data = [3, 9, 4, 11, 7]\nprint(statistics.median(data))"),
            gives(
                'Traceback (most recent call last):\n  File "<stdin>", line 2, in <module>\n'
                "NameError: name 'statistics' is not defined"
            ),
            says("I couldn't compute the median."),
        ),
        raised(
            "de",
            "The model's JavaScript calls a function that strings do not have.",
            user("Dreh das Wort »Regal« um."),
            asks("js_ausfuehren", code="console.log('Regal'.reverse())"),
            raises(
                "TypeError", '"Regal".reverse is not a function\n    at eval (eval at <anonymous>, <anonymous>:1:21)'
            ),
            says("Das Umdrehen hat nicht funktioniert."),
        ),
        raised(
            "es",
            "The model's Python divides a text.",
            user("Reparte 84,50 euros entre seis personas."),
            asks("ejecutar_python", codigo="total = '84.50'\nprint(total / 6)"),
            raises("TypeError", "unsupported operand type(s) for /: 'str' and 'int'"),
            says("No he podido hacer el reparto."),
        ),
        told(
            "zh",
            "The model's Python is indented wrongly.",
            user("用程序算出 100 以内的质数个数。"),
            asks(
                "run_python",
                code="n = 0\nfor i in range(2, 100):\nif all(i % d for d in range(2, i)):\n    n += 1\nprint(n)",
            ),
            gives(
                '  File "main.py", line 3\n    if all(i % d for d in range(2, i)):\n    ^\n'
                "IndentationError: expected an indented block after 'for' statement on line 2"
            ),
            says("程序没有运行成功，无法给出结果。"),
        ),
    ),
    *kind(
        "models-command",
        Expected("policy", "invalid_code"),
        told(
            "en",
            "The model's shell command has an option that does not exist.",
            user("Which five folders use the most space?"),
            asks("bash", command="du --top 5 -h ."),
            gives("du: unrecognized option '--top'\nTry 'du --help' for more information.\n[exit code 1]"),
            says("I couldn't list the folders."),
        ),
        told(
            "de",
            "The model's shell command lacks a closing quote.",
            user("Wie oft kommt »Müller« in namen.txt vor?"),
            asks("shell", befehl='grep -c "Müller namen.txt'),
            gives(
                'bash: -c: Zeile 1: Dateiende beim Suchen nach »"« erreicht.\nbash: -c: Zeile 2: '
                "Syntaxfehler: Unerwartetes Dateiende."
            ),
            says("Die Suche ist fehlgeschlagen."),
        ),
        raised(
            "es",
            "The model's git command names a subcommand that does not exist.",
            user("Deshaz el último commit sin perder los cambios."),
            asks("terminal", orden="git uncommit --keep"),
            raises("CalledProcessError", "git: 'uncommit' no es un comando de git. Mira 'git --help'."),
            says("No he podido deshacer el commit."),
        ),
        raised(
            "ja",
            "The model's kubectl command has a wrong flag.",
            user("Podの再起動回数を多い順に並べて。"),
            asks("run_command", command="kubectl get pods --order-by=restarts"),
            raises(
                "CommandError", "error: unknown flag: --order-by\nSee 'kubectl get --help' for usage.（終了コード 1）"
            ),
            says("並べ替えができませんでした。"),
        ),
    ),
    *kind(
        "models-program-does-not-build",
        Expected("policy", "invalid_code"),
        told(
            "en",
            "The model's Rust uses a value after it was moved.",
            user("Write and build a small program that prints a greeting twice."),
            asks("cargo_build", source='fn main() { let s = String::from("hi"); let t = s; println!("{} {}", s, t); }'),
            gives(
                "error[E0382]: borrow of moved value: `s`\n --> src/main.rs:1:70\nerror: could not "
                'compile `greet` (bin "greet") due to 1 previous error'
            ),
            says("The program does not build, sorry."),
        ),
        raised(
            "de",
            "The model's C# lacks a semicolon.",
            user("Schreib und übersetze ein C#-Programm, das das Datum ausgibt."),
            asks(
                "dotnet_build",
                quelltext="class P { static void Main() { System.Console.WriteLine(System.DateTime.Today) } }",
            ),
            raises("BuildException", "Program.cs(1,79): error CS1002: ; erwartet."),
            says("Das Programm lässt sich nicht übersetzen."),
        ),
        raised(
            "es",
            "The model's Java gives a text to a number.",
            user("Haz una clase Java con la edad y compílala."),
            asks("javac", fuente='class Persona { int edad = "treinta"; }'),
            raises(
                "CompilationFailure", "Persona.java:1: error: tipos incompatibles: String no se puede convertir en int"
            ),
            says("La clase no compila."),
        ),
        told(
            "zh",
            "The model's Go leaves an import unused.",
            user("写一个打印乘法表的 Go 程序并编译。"),
            asks("go_build", source='package main\nimport ("fmt"; "os")\nfunc main() { fmt.Println(1*1) }'),
            gives('# example/table\n./main.go:2:16: "os" imported and not used\n编译失败，退出码 1'),
            says("编译没有通过。"),
        ),
    ),
)

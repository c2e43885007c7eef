"""The example's database: a shop's products, employees, customers and orders, the same for every seed."""

import random
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple


class Table(NamedTuple):
    """A table, and what questions about it ask for."""

    name: str
    singular: str
    texts: tuple[str, ...]
    """Columns that questions filter and group by."""
    numbers: tuple[str, ...]
    """Columns that questions compare and aggregate."""
    is_named: bool = True
    """The rows have names."""


PRODUCTS: Final = Table("products", "product", ("category", "brand"), ("price", "stock"))
EMPLOYEES: Final = Table("employees", "employee", ("role", "city"), ("salary", "age"))
CUSTOMERS: Final = Table("customers", "customer", ("country", "plan"), ("points",))
ORDERS: Final = Table("orders", "order", ("customer", "product"), ("quantity", "fee"), is_named=False)
TABLES: Final = (PRODUCTS, EMPLOYEES, CUSTOMERS, ORDERS)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "category": _words("toys books games shoes bags tools lamps chairs clocks plants"),
    "brand": _words("Velora Brontex Quillon Marvane Tolvik Sandrel Ombrix Lastrom"),
    "role": _words("clerk manager driver guard cook buyer painter analyst"),
    "city": _words("Oslo Lima Rome Cairo Tokyo Perth Quito Berlin"),
    "country": _words("Norway Peru Italy Egypt Japan Chile Ghana Nepal"),
    "plan": _words("basic silver gold family student business"),
}
_COLOURS: Final = _words("red white black oak blue green grey pine")
_THINGS: Final = _words("mug rug desk vase kite drum")
_FIRST_NAMES: Final = _words("Anna Tom Maria Ken Lucy Omar Clara Igor Nina Hugo")
_EMPLOYEES: Final = _words("Berg Okoro Lund Sato")
_CUSTOMERS: Final = _words("Voss Petrov Adler Lam")
_NUMBERS: Final = {
    "price": (5, 400),
    "stock": (1, 900),
    "salary": (1500, 9000),
    "age": (18, 99),
    "points": (10, 2000),
    "quantity": (1, 500),
    "fee": (1, 300),
}
_ORDER_COUNT: Final = 120


def _names(first: tuple[str, ...], second: tuple[str, ...]) -> list[str]:
    return [f"{one} {two}" for one in first for two in second]


@cache
def contents() -> dict[str, list[dict[str, str | int]]]:
    """Return the rows of each table. No number occurs twice in a column, so that each has one largest value."""
    rng = random.Random("shop")
    names = {
        "products": _names(_COLOURS, _THINGS),
        "employees": _names(_FIRST_NAMES, _EMPLOYEES),
        "customers": _names(_FIRST_NAMES, _CUSTOMERS),
    }
    values = _VALUES | {"customer": tuple(names["customers"]), "product": tuple(names["products"])}
    rows: dict[str, list[dict[str, str | int]]] = {}
    for table in TABLES:
        count = len(names[table.name]) if table.is_named else _ORDER_COUNT
        numbers = {column: rng.sample(range(*_NUMBERS[column]), count) for column in table.numbers}
        rows[table.name] = [
            ({"name": names[table.name][place]} if table.is_named else {})
            | {column: rng.choice(values[column]) for column in table.texts}
            | {column: numbers[column][place] for column in table.numbers}
            for place in range(count)
        ]
    return rows


def write_shop(path: Path) -> None:
    """Create the database; an existing one is replaced."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as connection, connection:
        for table, rows in contents().items():
            columns = ", ".join(f"{column} {_type(value)} NOT NULL" for column, value in rows[0].items())
            connection.execute(f"CREATE TABLE {table} ({columns})")
            places = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", [tuple(row.values()) for row in rows])
    partial.replace(path)


def _type(value: str | int) -> str:
    return "INTEGER" if isinstance(value, int) else "TEXT"

"""Writes the tiny demo's world to disk: the shop's database, and the tasks with their right answers."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

TASK_COUNT: Final = 8


class World(NamedTuple):
    """Files that the demo's agent reads."""

    tasks: Path
    database: Path


def write_world(folder: Path) -> World:
    """Write ``world.json`` and ``shop.sqlite`` into ``folder``."""
    from spanloop.demo.shop import ITEMS, QUANTITIES, SYSTEM, TOOLS, UNKNOWN_ITEMS, question

    folder.mkdir(parents=True, exist_ok=True)
    world = World(folder / "world.json", folder / "shop.sqlite")
    tasks: list[dict[str, str]] = []
    for number, item in enumerate([*ITEMS, *UNKNOWN_ITEMS][:TASK_COUNT]):
        quantity = QUANTITIES[number % len(QUANTITIES)]
        answer = str(ITEMS[item] * quantity) if item in ITEMS else "We do not sell that."
        tasks.append({"id": f"shop-{number}", "question": question(item, quantity), "item": item, "answer": answer})
    content = {"system": SYSTEM, "tools": [tool.definition() for tool in TOOLS], "tasks": tasks}
    world.tasks.write_text(json.dumps(content, indent=1))
    with closing(sqlite3.connect(world.database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS items (name TEXT PRIMARY KEY, price INTEGER NOT NULL)")
        connection.executemany("INSERT OR REPLACE INTO items VALUES (?, ?)", ITEMS.items())
    return world

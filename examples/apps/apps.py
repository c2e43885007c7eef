"""An office of apps over one SQLite database: mail, calendar, files and payments.

A task needs several apps. It is done when the final state of the database is the expected one: what had to be written
is written, and nothing else. Every write is checked by its app, which explains what it refuses.
"""

import re
import sqlite3
from datetime import date
from typing import Any, ClassVar, Final

from pydantic import JsonValue, PrivateAttr

from spanloop.evaluation.environments import Action, Environment, EnvironmentFailedError, Fields, StepResult, Tool

INSTRUCTIONS: Final = "You work in an office. Use the tools, write only what is asked for, and call finish at the end."
"""An agent is told this before it gets a task."""
BALANCE: Final = 1_000
"""Money in the account at the start."""
_TABLES: Final = """
CREATE TABLE contacts (name TEXT PRIMARY KEY);
CREATE TABLE mail (sender TEXT, recipient TEXT, text TEXT);
CREATE TABLE calendar (day TEXT, hour INTEGER, title TEXT, PRIMARY KEY (day, hour));
CREATE TABLE files (name TEXT PRIMARY KEY, text TEXT);
CREATE TABLE payments (recipient TEXT, amount INTEGER);
"""
WRITTEN: Final = ("mail", "calendar", "files", "payments")
"""Tables whose final rows count."""
_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 500}
_NUMBER: Final = {"type": "integer"}


class RefusedError(Exception):
    """An app refuses what it is asked for; the text is for the agent."""


def _tool(name: str, description: str, /, **fields: object) -> Tool:
    parameters: dict[str, Any] = {"type": "object", "properties": fields, "required": list(fields)}
    return Tool(name, description, {**parameters, "additionalProperties": False})


class Apps(Environment):
    """An office of apps: mail, calendar, files and payments over SQLite."""

    summary: ClassVar[str] = "An office of apps: mail, calendar, files and payments over SQLite."

    _database: sqlite3.Connection | None = PrivateAttr(default=None)
    _task: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Fill the database with the rows of the task; return what is asked."""
        del seed
        self._task = dict(task)
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._database.executescript(_TABLES)
        try:
            for table, rows in self._task["rows"].items():
                for row in rows:
                    self._insert(table, row)
            return str(self._task["request"])
        except (KeyError, AttributeError, sqlite3.Error) as error:
            raise EnvironmentFailedError(f"task {task.get('task_id', '')!r} has no usable rows: {error}") from error

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools of the apps."""
        return (
            _tool("read_mail", "Read the mails of a sender.", sender=_TEXT),
            _tool("send_mail", "Send a mail to a contact.", recipient=_TEXT, text=_TEXT),
            _tool("read_calendar", "Read the entries of a day.", day=_TEXT),
            _tool("add_entry", "Add an entry to the calendar.", day=_TEXT, hour=_NUMBER, title=_TEXT),
            _tool("read_file", "Read a file.", name=_TEXT),
            _tool("write_file", "Write a new file.", name=_TEXT, text=_TEXT),
            _tool("pay", "Pay a contact in whole dollars.", recipient=_TEXT, amount=_NUMBER),
            _tool("finish", "Say that the task is done."),
        )

    def step(self, action: Action) -> StepResult:
        """Use an app, or end the task."""
        if action.tool == "finish":
            return self._judged()
        use = getattr(self, f"_{action.tool}")
        try:
            return StepResult(str(use(**action.arguments)), reward=0.0)
        except RefusedError as error:
            return StepResult(f"Error: {error}", reward=0.0, error=True)

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()

    def state(self) -> dict[str, list[list[Any]]]:
        """Return the rows of each table that counts, sorted."""
        return {table: sorted(map(list, self._rows(f"SELECT * FROM {table}"))) for table in WRITTEN}

    def _judged(self) -> StepResult:
        rows, writes, state = self._task["rows"], self._task["writes"], self.state()
        wrong = [table for table in WRITTEN if state[table] != sorted([*rows.get(table, ()), *writes.get(table, ())])]
        reason = f"Other than expected: {', '.join(wrong)}." if wrong else "The database has the expected state."
        return StepResult("Done.", reward=float(not wrong), done=True, success=not wrong, reason=reason)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        if self._database is None:
            raise EnvironmentFailedError("no episode was started")
        return self._database.execute(query, values).fetchall()

    def _insert(self, table: str, row: list[Any]) -> None:
        self._rows(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)

    def _check_contact(self, name: str) -> None:
        if not self._rows("SELECT 1 FROM contacts WHERE name = ?", name):
            known = ", ".join(name for (name,) in self._rows("SELECT name FROM contacts ORDER BY name"))
            raise RefusedError(f"{name!r} is no contact; contacts: {known}.")

    def _read_mail(self, sender: str) -> str:
        texts = [text for (text,) in self._rows("SELECT text FROM mail WHERE sender = ?", sender)]
        return "\n".join(texts) or f"There is no mail of {sender}."

    def _send_mail(self, recipient: str, text: str) -> str:
        self._check_contact(recipient)
        self._insert("mail", ["me", recipient, text])
        return f"Sent to {recipient}."

    def _read_calendar(self, day: str) -> str:
        rows = self._rows("SELECT hour, title FROM calendar WHERE day = ? ORDER BY hour", _checked_day(day))
        return "\n".join(f"{hour}: {title}" for hour, title in rows) or "The day is free."

    def _add_entry(self, day: str, hour: int, title: str) -> str:
        if not 8 <= hour <= 18:
            raise RefusedError(f"hour is {hour}, expected 8 to 18.")
        if self._rows("SELECT 1 FROM calendar WHERE day = ? AND hour = ?", _checked_day(day), hour):
            raise RefusedError(f"{day} {hour} is taken.")
        self._insert("calendar", [day, hour, title])
        return "Added."

    def _read_file(self, name: str) -> str:
        rows = self._rows("SELECT text FROM files WHERE name = ?", name)
        if not rows:
            raise RefusedError(f"There is no file {name!r}.")
        return str(rows[0][0])

    def _write_file(self, name: str, text: str) -> str:
        if not re.fullmatch(r"[a-z0-9-]{1,30}\.txt", name):
            raise RefusedError(f"{name!r} is no name of a file, such as notes.txt.")
        if self._rows("SELECT 1 FROM files WHERE name = ?", name):
            raise RefusedError(f"{name} exists.")
        self._insert("files", [name, text])
        return "Written."

    def _pay(self, recipient: str, amount: int) -> str:
        self._check_contact(recipient)
        ((spent,),) = self._rows("SELECT coalesce(sum(amount), 0) FROM payments")
        if not 0 < amount <= BALANCE - spent:
            raise RefusedError(f"amount is {amount}, expected 1 to {BALANCE - spent}.")
        self._insert("payments", [recipient, amount])
        return f"Paid {amount} to {recipient}."


def _checked_day(day: str) -> str:
    try:
        return date.fromisoformat(day).isoformat()
    except ValueError as error:
        raise RefusedError(f"day is {day!r}, expected one such as 2027-03-01.") from error

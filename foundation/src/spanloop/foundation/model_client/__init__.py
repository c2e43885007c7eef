"""A client of OpenAI-compatible models for judges, rubrics and graders: cached on disk, within a budget, counted.

Invariant: a call is booked before it is sent, so that processes that share a data directory share its budget. The
same request is paid for once: its answer is read from the cache afterwards.
"""

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final, cast

import httpx

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.settings import Model

CACHE_FILE: Final = "model_calls.db"

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS spending (endpoint TEXT PRIMARY KEY, calls INTEGER NOT NULL, cost REAL NOT NULL);
"""


class ModelCallError(SpanloopError):
    """The model gave no answer."""


class BudgetExceededError(ModelCallError):
    """The budget of calls or money is spent."""


class ModelClient:
    """Asks one model."""

    def __init__(self, settings: Model, directory: Path) -> None:
        """Ask the model of ``settings``; cache and budget are kept in ``directory``."""
        self._settings: Final = settings
        self._file: Final = directory / CACHE_FILE
        self.counts: Final[Counter[str]] = Counter()
        """``calls``, ``cached``, ``failed`` and ``over_budget`` of this client."""

    def ask(self, prompt: str) -> str:
        """The model's answer to ``prompt``, sampled at temperature 0.

        Raises:
            BudgetExceededError: No call is left, or the money is spent.
            ModelCallError: The endpoint cannot be reached, refuses, or answers in another form.
        """
        settings = self._settings
        body: dict[str, object] = {
            "model": settings.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
        }
        key = sha256(json.dumps([settings.url, body], sort_keys=True).encode("utf-8", "replace")).hexdigest()
        with closing(self._connect()) as database:
            row = cast(
                "tuple[str] | None", database.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone()
            )
            if row is not None:
                self.counts["cached"] += 1
                return row[0]
            self._book(database)
            self.counts["calls"] += 1
            try:
                text, cost = self._post(body)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError, AttributeError) as error:
                self.counts["failed"] += 1
                if isinstance(error, (httpx.ConnectError, httpx.HTTPStatusError)):
                    self._refund(database)  # nothing was generated
                raise ModelCallError(
                    f"Model {settings.model!r} at {settings.url} gave no answer: {type(error).__name__}: {error}.",
                    next_step="Check url, model and api_key_env of the model in spanloop.toml.",
                ) from error
            with database:
                database.execute("UPDATE spending SET cost = cost + ? WHERE endpoint = ?", (cost, self._endpoint))
                database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, text))
            return text

    @property
    def _endpoint(self) -> str:
        return f"{self._settings.url} {self._settings.model}"

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._file, timeout=30.0)
        database.executescript(_TABLES)
        return database

    def _book(self, database: sqlite3.Connection) -> None:
        settings = self._settings
        most = float("inf") if settings.max_cost is None else settings.max_cost
        with database:
            database.execute("INSERT OR IGNORE INTO spending VALUES (?, 0, 0)", (self._endpoint,))
            booked = database.execute(
                "UPDATE spending SET calls = calls + 1 WHERE endpoint = ? AND calls < ? AND cost < ?",
                (self._endpoint, settings.max_calls, most),
            )
        if not booked.rowcount:
            self.counts["over_budget"] += 1
            raise BudgetExceededError(
                f"The budget of model {settings.model!r} is spent.",
                next_step="Raise max_calls or max_cost of the model in spanloop.toml.",
            )

    def _refund(self, database: sqlite3.Connection) -> None:
        with database:
            database.execute("UPDATE spending SET calls = calls - 1 WHERE endpoint = ?", (self._endpoint,))

    def _post(self, body: dict[str, object]) -> tuple[str, float]:
        """The answer's text and its cost."""
        settings = self._settings
        api_key = os.environ.get(settings.api_key_env, "") if settings.api_key_env else ""
        response = httpx.post(
            f"{settings.url.rstrip('/')}/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=settings.timeout_s,
        )
        response.raise_for_status()
        answer = response.json()
        usage = cast("dict[str, int | None]", answer.get("usage") or {})
        prices = (("prompt_tokens", settings.prompt_price), ("completion_tokens", settings.completion_price))
        cost = sum((usage.get(name) or 0) * price / 1e6 for name, price in prices)
        text = answer["choices"][0]["message"]["content"]
        if not isinstance(text, str):
            raise TypeError(f"content is {type(text).__name__}, expected text")
        return text, cost

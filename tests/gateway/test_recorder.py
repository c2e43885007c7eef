"""Inserting captures from the spool into ClickHouse, under each kind of failure."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from spanloop.foundation.errors import NotRunningError, StoreError
from spanloop.gateway.capture.recorder import Recorder
from spanloop.gateway.capture.tokens import Capture, encode_captures
from spanloop.gateway.metrics import Metrics
from spanloop.spool import Spool
from spanloop.store import Store
from spanloop.store.client import Address


def capture(number: int) -> Capture:
    return Capture(
        response_id=f"r{number}",
        choice_index=0,
        trace_id="",
        parent_span_id="",
        model="m",
        policy_version="m@v1",
        prompt_token_ids=[1, number],
        response_token_ids=[number],
        logprobs=[-0.5],
        finish_reason="stop",
        is_complete=True,
        sampling={},
        started_ns=1_795_158_809_000_000_000 + number,
        duration_ns=1,
        tokenizer="fingerprint",
    )


@asynccontextmanager
async def recording(directory: Path, connect: Callable[[], Store]) -> AsyncGenerator[tuple[Recorder, Spool, Metrics]]:
    spool, metrics = Spool(directory / "generations", max_bytes=1 << 20), Metrics()
    recorder = Recorder(spool, connect, directory / "rejected.jsonl", metrics)
    drain = asyncio.create_task(recorder.run())
    try:
        yield recorder, spool, metrics
    finally:
        drain.cancel()
        with suppress(asyncio.CancelledError):
            await drain
        await recorder.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what it waits for happens in a thread
            await asyncio.sleep(0.02)


def rows(stored_rows: Callable[[int], list[dict[str, Any]]], count: int) -> list[str]:
    return [row["response_id"] for row in stored_rows(count)]


async def test_captures_wait_in_the_spool_while_clickhouse_is_unavailable(
    tmp_path: Path, address: Address, stored_rows: Callable[[int], list[dict[str, Any]]]
) -> None:
    tries = 0

    def connect() -> Store:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise NotRunningError("No ClickHouse runs.")
        return Store.open(address)

    async with recording(tmp_path, connect) as (recorder, _, metrics):
        assert await recorder.record([capture(1)])
        await until(lambda: recorder.last_error == "No ClickHouse runs.")
        assert recorder.stats.records == 1
        assert await recorder.record([capture(2), capture(3)])
        await until(lambda: recorder.stats.records == 0)
        assert recorder.last_error == ""
        assert metrics.get("captures_inserted_total") == 3
    assert rows(stored_rows, 3) == ["r1", "r2", "r3"]


async def test_a_block_whose_outcome_is_unknown_is_sent_again_and_stored_once(
    tmp_path: Path, address: Address, stored_rows: Callable[[int], list[dict[str, Any]]]
) -> None:
    tokens: list[str] = []

    class Flaky(Store):
        def insert(self, table: str, frame: pl.DataFrame, *, token: str = "", until_us: int | None = None) -> int:
            tokens.append(token)
            count = super().insert(table, frame, token=token, until_us=until_us)
            if len(tokens) == 1:
                raise StoreError("The connection broke after the insert.")
            return count

    async with recording(tmp_path, lambda: Flaky.open(address)) as (recorder, _, _metrics):
        await recorder.record([capture(1)])
        await until(lambda: recorder.stats.records == 0)
        await recorder.record([capture(2)])
        await until(lambda: recorder.stats.records == 0)
    assert tokens[0] == tokens[1] != tokens[2]
    assert rows(stored_rows, 2) == ["r1", "r2"]


async def test_an_invalid_record_is_moved_to_the_rejected_file_and_blocks_nothing(
    tmp_path: Path, address: Address, stored_rows: Callable[[int], list[dict[str, Any]]]
) -> None:
    impossible = encode_captures([capture(2)]).replace(b'"choice_index":0', b'"choice_index":-1')
    async with recording(tmp_path, lambda: Store.open(address)) as (recorder, spool, metrics):
        for body in (b"not ours", encode_captures([capture(1)]), impossible, encode_captures([capture(3)])):
            await spool.append("generation", body)
        await until(lambda: recorder.stats.records == 0)
        assert metrics.get("captures_rejected_total") == 2
    assert rows(stored_rows, 2) == ["r1", "r3"]
    rejected = [json.loads(line) for line in (tmp_path / "rejected.jsonl").read_text().splitlines()]
    assert [entry["body"] for entry in rejected] == ["not ours", impossible.decode()]


async def test_the_next_process_inserts_remaining_captures(
    tmp_path: Path, address: Address, stored_rows: Callable[[int], list[dict[str, Any]]]
) -> None:
    def away() -> Store:
        raise NotRunningError("No ClickHouse runs.")

    async with recording(tmp_path, away) as (recorder, _, _metrics):
        await recorder.record([capture(1)])
    async with recording(tmp_path, lambda: Store.open(address)) as (recorder, _, _metrics):
        await until(lambda: recorder.stats.records == 0)
    assert rows(stored_rows, 1) == ["r1"]


async def test_a_cancelled_request_still_stores_its_capture(tmp_path: Path) -> None:
    def away() -> Store:
        raise NotRunningError("No ClickHouse runs.")

    async with recording(tmp_path, away) as (recorder, _, _metrics):
        request = asyncio.create_task(recorder.record([capture(1)]))
        await asyncio.sleep(0)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await until(lambda: recorder.stats.records == 1)

"""Indexing adds what is new, once: beside other indexers, redactions, removals, and after a kill."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from messager_store import EventLog, Experiment, NewEvent
from messager_store.errors import DamagedStore, ExperimentNotFound, ScrubUnfinished
from messager_store.log import text
from messager_store.log.event_query import EventQuery
from messager_store.maintenance.removal import remove, sweep_unfinished
from messager_store.maintenance.verify import verify_all
from messager_store.privacy.redaction import redact
from messager_store.privacy.redaction_filter import RedactionFilter
from messager_store.queries import deliveries, side_tables, texts
from messager_store.queries.index import Indexed, index, index_or_warn
from tests.support import nightly_after, sql
from tests.support.logs import experiment, sent

TABLES = ("said", "delivery", "activity", "indexed_recorder", "indexed_experiment")


async def society(log: EventLog, exp_id: str = "e1", messages: int = 20) -> Experiment:
    """Create two recorders: what the first sends, the second receives."""
    of = await experiment(log, exp_id)
    speaker, listener = [await log.register(of, role="messager") for _ in range(2)]
    payloads = [b'{"message": "Gr\\u00fc\\u00dfe %d"}' % at for at in range(messages)]
    await log.append(speaker, [sent(at * 10, payload, from_id=1) for at, payload in enumerate(payloads)])
    await log.append(listener, [NewEvent("received", at * 10 + 5, "c", p, 1) for at, p in enumerate(payloads)])
    for writer in (speaker, listener):
        await log.touch(writer, ended_at=1)
    return of


def rows(store: str) -> dict[str, list[Any]]:
    """Return the rows of the side tables, without the number of turns."""
    found = {table: sorted(sql(store, f"SELECT * FROM {table}")) for table in TABLES}
    return {**found, "indexed_experiment": [row[:3] for row in found["indexed_experiment"]]}


def empty(store: str) -> bool:
    return not any(rows(store).values())


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PAGE", 3)
    monkeypatch.setattr(deliveries, "PAGE", 3)


async def test_each_call_adds_what_is_new(log: EventLog, store: str) -> None:
    of = await society(log)
    assert await index(log, of) == Indexed(events=40, deliveries=20)
    before = rows(store)
    assert await index(log, of) == Indexed()
    writer = await log.register(of, role="messager")
    await log.append(writer, [NewEvent("received", 8, "c", b'{"message": "Gr\\u00fc\\u00dfe 0"}')])
    assert await index(log, of) == Indexed(events=1, deliveries=1)
    after = rows(store)
    assert all(set(before[table]) < set(after[table]) for table in ("said", "delivery", "activity"))


async def test_a_search_finds_words_however_they_were_sent(log: EventLog, store: str) -> None:
    of = await experiment(log)
    words = (
        '{"message": "Gr\u00fc\u00dfe"}',
        '{"text": "GR\\u00dcSSE"}',
        '{"content": "{\\"text\\": \\"gru\u0308sse\\"}"}',
    )
    await log.append(await log.register(of, role="tap"), [sent(at, word.encode()) for at, word in enumerate(words)])
    await index(log, of)
    wanted = text.normalised("Gr\u00fc\u00dfe")
    assert sql(store, f"SELECT count(*) FROM said WHERE folded LIKE '%{wanted}%'") == [(3,)]


async def test_bytes_that_are_no_text_are_indexed_without_text(log: EventLog, store: str) -> None:
    of = await experiment(log)
    payloads = [b'{"content": "before"}', b"\xff" * 100_000, b'{"content": "half \\ud83d"}', b"after"]
    writer = await log.register(of, role="tap")
    await log.append(writer, [sent(at, payload) for at, payload in enumerate(payloads)])
    await index(log, of)
    stored = sql(store, "SELECT text, folded FROM said ORDER BY event_id")
    assert stored == [("before",) * 2, (None, None), ("half \ufffd",) * 2, ("after",) * 2]
    assert sql(store, "SELECT sum(messages) FROM activity") == [(4,)]


async def test_a_long_text_is_cut(log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_TEXT", 5)
    of = await experiment(log)
    mark = NewEvent("mark", 2, None, b"", meta={"name": "a long name"})
    await log.append(await log.register(of, role="tap"), [sent(0, "ßßßß".encode()), sent(1, b"ABCDEFG"), mark])
    await index(log, of)
    stored = sql(store, "SELECT text, folded FROM said ORDER BY event_id")
    assert stored == [("ßßßß", "sssss"), ("ABCDE", "abcde"), ("a lon", "a lon")]


async def test_activity_counts_messages_by_minute(log: EventLog, store: str, small_pages: None) -> None:
    of = await experiment(log)
    minute = 60_000_000_000
    at = [0, 1, minute - 1, minute, -1, -(2**63)]
    await log.append(await log.register(of, role="tap"), [sent(ts, b"four", from_id=7) for ts in at])
    await index(log, of)
    counted = sql(store, "SELECT bucket, sum(messages), sum(payload_bytes) FROM activity GROUP BY bucket ORDER BY 1")
    assert counted == [(-(2**63), 1, 4), (-minute, 1, 4), (0, 3, 12), (minute, 1, 4)]


async def test_a_page_reads_no_activity_of_the_pages_before_it(
    log: EventLog, store: str, small_pages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = await experiment(log)
    minutes = [at * 7 % 30 for at in range(60)]
    await log.append(await log.register(of, role="tap"), [sent(60_000_000_000 * at, b"four") for at in minutes])
    statements: list[str] = []
    real = AsyncConnection.execute

    async def noted(self: AsyncConnection, statement: Any, *more: Any, **options: Any) -> Any:
        statements.append(str(statement))
        return await real(self, statement, *more, **options)

    monkeypatch.setattr(AsyncConnection, "execute", noted)
    await index(log, of)
    assert sql(store, "SELECT count(*), min(messages), max(messages), min(payload_bytes) FROM activity") == [
        (30, 2, 2, 8)
    ]
    assert [one for one in statements if "FROM activity" in one and not one.startswith("DELETE")] == []
    assert any("INTO activity" in one for one in statements)


@pytest.mark.usefixtures("small_pages")
async def test_two_indexers_at_once_count_each_event_once(log: EventLog, store: str) -> None:
    of = await society(log, "other")
    await index(log, of)
    wanted = rows(store)
    for table in TABLES:
        sql(store, f"DELETE FROM {table}")
    async with EventLog.open(store) as second:
        done = await asyncio.gather(*(index(one, of) for one in (log, second, log)))
    assert rows(store) == wanted
    assert sum(each.events for each in done) == 40


class Killed(Exception):
    pass


async def index_until(log: EventLog, of: Experiment, pages: int) -> None:
    """Index, but stop in the page after so many."""
    left = pages

    def progress(done: int, total: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    with contextlib.suppress(Killed):
        await index(log, of, progress=progress)


class Interruption:
    """Calls something after a page was read, before what was read is used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, action: Callable[[], Awaitable[Any]]) -> None:
        self.left = at
        read = EventQuery.rows_within

        async def rows_within(*arguments: Any, **values: int) -> list[Any]:
            found = await read(*arguments, **values)
            self.left -= 1
            if self.left == 0:
                await action()
            return found

        monkeypatch.setattr(EventQuery, "rows_within", rows_within)


@pytest.mark.parametrize("at", nightly_after(2, [1, 2, 14, 17, 25]))
@pytest.mark.usefixtures("small_pages")
async def test_an_indexer_that_was_overtaken_adds_nothing_twice(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    of = await society(log)
    await index(log, of)
    wanted = rows(store)
    for table in TABLES:
        sql(store, f"DELETE FROM {table}")
    async with EventLog.open(store) as second:
        interruption = Interruption(monkeypatch, at, lambda: index(second, of))
        await index(log, of)
    assert interruption.left <= 0
    assert rows(store) == wanted


@pytest.mark.parametrize(
    ("at", "again"),
    nightly_after(
        4,
        [(1, "enlisted"), (2, "enlisted"), (20, "enlisted"), (1, "indexed"), (2, "indexed"), (20, "indexed")]
        + [(at, "begun") for at in range(15, 19)],
    ),
)
@pytest.mark.usefixtures("small_pages")
async def test_what_was_read_before_a_redaction_is_not_written_after_it(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch, at: int, again: str
) -> None:
    """Even if the state of the tables looks as before, because another indexer has begun."""
    for database in ("sqlite", "postgres"):
        monkeypatch.setattr(f"messager_store.db.{database}.dialect.REWRITE_SECONDS", 0.0)
    monkeypatch.setattr("messager_store.db.sqlite.dialect.BUSY_TIMEOUT_MS", 100)
    of = await society(log)
    async with EventLog.open(store) as second:

        async def redacted() -> None:
            with contextlib.suppress(ScrubUnfinished):  # the page is still being read
                await redact(second, of, RedactionFilter(agents=((1,),)), who="me", why="asked to")
            assert empty(store)
            if again == "enlisted":
                await side_tables.enlist(second.database, of)
            elif again == "begun":
                await index_until(second, of, 14)  # all texts, and no page of deliveries
            else:
                await index(second, of)

        interruption = Interruption(monkeypatch, at, redacted)
        await index(log, of)
    assert interruption.left <= 0
    assert sql(store, "SELECT count(*), count(text), count(folded) FROM said") == [(40, 0, 0)]
    assert sql(store, "SELECT sum(messages), sum(payload_bytes) FROM activity") == [(40, 0)]
    assert sql(store, "SELECT count(*) FROM delivery") == [(0,)]


@pytest.mark.parametrize("at", nightly_after(1, [1, 2, 20]))
@pytest.mark.usefixtures("small_pages")
async def test_nothing_is_written_after_a_removal(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    of = await society(log)
    async with EventLog.open(store) as second:
        Interruption(monkeypatch, at, lambda: remove(second, of))
        with pytest.raises(ExperimentNotFound):
            await index(log, of)
    assert empty(store)


@pytest.mark.parametrize("at", nightly_after(2, [1, 2, 14, 17, 20]))
@pytest.mark.usefixtures("small_pages")
async def test_nothing_is_written_while_a_removal_is_unfinished(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    of = await society(log)
    seen = []

    def killed(done: int, total: int) -> None:
        raise Killed

    async def remove_a_part() -> None:
        with contextlib.suppress(Killed):
            await remove(second, of, progress=killed)
        seen.append([sql(store, f"SELECT count(*) FROM {table}") for table in TABLES[:3]])

    async with EventLog.open(store) as second:
        Interruption(monkeypatch, at, remove_a_part)
        with pytest.raises(ExperimentNotFound):
            await index(log, of)
    assert seen == [[sql(store, f"SELECT count(*) FROM {table}") for table in TABLES[:3]]]
    with pytest.raises(ExperimentNotFound):
        await index(log, of)
    assert await sweep_unfinished(log) == 1
    assert empty(store)


async def test_text_of_another_decoder_is_decoded_again(log: EventLog, store: str) -> None:
    of = await society(log)
    await index(log, of)
    wanted = rows(store)
    sql(store, "UPDATE said SET text = 'as it was decoded before'", "UPDATE indexed_experiment SET decoder = 0")
    assert await index(log, of) == Indexed(events=40)
    assert rows(store) == wanted


async def test_an_experiment_that_cannot_be_indexed_is_named_in_a_warning(
    log: EventLog, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    of = await society(log)
    sql(store, "ALTER TABLE said RENAME TO elsewhere")
    assert not await index_or_warn(log, of)
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["e1 could not be indexed"]
    assert "`messager index e1` completes them" in caplog.text
    sql(store, "ALTER TABLE elsewhere RENAME TO said")
    assert await index_or_warn(log, of)
    assert len(rows(store)["said"]) == 40


async def test_a_wrong_value_in_an_event_is_reported_as_damage(log: EventLog, store: str) -> None:
    of = await society(log)
    if "://" in store:
        return  # its columns hold values of one type
    sql(store, "UPDATE event SET payload = 5 WHERE id & 255 = 7")
    with pytest.raises(DamagedStore, match="wrong type; `messager verify`"):
        await index(log, of)


async def test_an_experiment_without_events_has_nothing_to_index(log: EventLog, store: str) -> None:
    of = await experiment(log)
    assert await index(log, of) == Indexed()
    assert empty(store)


@pytest.mark.parametrize(
    ("table", "row", "owner"),
    nightly_after(
        2,
        [
            ("said", "9 << 40, NULL, NULL", "recorder"),
            ("delivery", "9 << 40, 1, 1", "recorder"),
            ("activity", "9, 1, 1, 1, 1, 1, 1, 1", "recorder"),
            ("indexed_recorder", "9, 1, 1", "recorder"),
            ("indexed_experiment", "9, 1, 1, 1", "experiment"),
        ],
    ),
)
async def test_rows_without_an_owner_are_found(log: EventLog, store: str, table: str, row: str, owner: str) -> None:
    await index(log, await society(log))
    sql(store, f"INSERT INTO {table} VALUES ({row})")
    problems = [problem async for verdict in verify_all(log) for problem in verdict.problems]
    assert problems == [f"1 rows of table {table} belong to no {owner}"]

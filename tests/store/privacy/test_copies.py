"""A redaction names the forks and the parent that hold the same events, and `redacted_in` selects those there."""

from __future__ import annotations

from typing import Any

import pytest

from messager_store import Event, EventLog, NewEvent, RedactionFilter, redact
from messager_store.errors import StoreError
from messager_store.maintenance.removal import remove
from messager_store.maintenance.verify import verify
from messager_store.privacy.copies import Copies
from tests.support.lineage import fork, parent
from tests.support.logs import filled, listed, sent

SECRET = RedactionFilter(contains=("secret",))


async def done(log: EventLog, exp_id: str, chosen: RedactionFilter, **options: Any) -> list[Copies]:
    return (await redact(log, exp_id, chosen, who="Bo", why="asked to", **options)).copies


async def redacted(log: EventLog, exp_id: str) -> list[Event]:
    return [entry for entry in await listed(log.read(exp_id)) if entry.redacted]


async def test_a_redaction_of_the_parent_names_the_forks_that_hold_copies(log: EventLog) -> None:
    await parent(log)
    for into, at in (("exp-2", None), ("exp-3", 3), ("exp-4", "mark:phase")):
        await fork(log, into=into, at=at)
    planned = await done(log, "exp-1", SECRET, dry_run=True)
    assert planned == [Copies("exp-2", 1, True), Copies("exp-4", 1, True)]
    assert await done(log, "exp-1", SECRET) == planned
    assert await redacted(log, "exp-4") == []
    assert await done(log, "exp-1", RedactionFilter(channels=("d",))) == planned, (
        "they are named until they are redacted"
    )


async def test_redacted_in_selects_the_copies_and_only_those(log: EventLog) -> None:
    await parent(log)
    forked = await fork(log, at=None)
    await done(log, "exp-1", RedactionFilter(kinds=("mark",)))
    await done(log, "exp-1", SECRET)
    assert await done(log, "exp-2", RedactionFilter(redacted_in=("exp-1",))) == []
    assert [(entry.kind, entry.payload, entry.origin is not None) for entry in await redacted(log, "exp-2")] == [
        ("sent", b"", True),
        ("mark", b"", True),
    ]
    assert (await verify(log, forked)).problems == []
    every = RedactionFilter(until=(10,))
    assert await done(log, "exp-1", every, dry_run=True) == [Copies("exp-2", 3, True)], "the other three copies"


async def test_a_redaction_of_a_fork_names_the_parent_and_the_forks_of_the_fork(log: EventLog) -> None:
    await parent(log)
    await fork(log)
    await fork(log, "exp-2", "exp-3", at=None)
    assert await done(log, "exp-2", SECRET) == [Copies("exp-3", 1, True), Copies("exp-1", 1, False)]
    assert await done(log, "exp-1", RedactionFilter(redacted_in=("exp-2",))) == []
    assert await done(log, "exp-3", RedactionFilter(redacted_in=("exp-2",))) == []
    for exp_id in ("exp-1", "exp-2", "exp-3"):
        assert [entry.kind for entry in await redacted(log, exp_id)] == ["sent"], exp_id


async def test_other_conditions_hold_besides_redacted_in(log: EventLog) -> None:
    await parent(log)
    await fork(log)
    await done(log, "exp-1", RedactionFilter(until=(10,)))
    await done(log, "exp-2", RedactionFilter(redacted_in=("exp-1",), channels=("d",)))
    assert [entry.channel for entry in await redacted(log, "exp-2")] == ["d"]


async def test_a_fork_of_another_store_or_of_a_removed_parent_has_no_relation(log: EventLog) -> None:
    of = await parent(log)
    await fork(log)
    await filled(log, [sent(1, b"secret")], "exp-9")
    with pytest.raises(StoreError, match="exp-2 and exp-9 have no events in common"):
        await done(log, "exp-2", RedactionFilter(redacted_in=("exp-9",)))
    await remove(log, of)
    assert await done(log, "exp-2", SECRET) == []


async def test_copies_in_several_recorders_and_more_than_a_page_are_counted(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("messager_store.privacy.copies.PAGE", 3)
    monkeypatch.setattr("messager_store.privacy.copies.LOOKUP", 3)
    of = await filled(log, [sent(at, b"secret") for at in range(1, 9)], "exp-1")
    [row] = await log.recorders(of)
    await log.touch(await log.take_over(row.uuid), ended_at=1)
    made = await log.create_experiment("exp-2", parent="exp-1")
    for begin in (1, 5):
        writer = await log.register(made, role="messager")
        copies = [NewEvent("sent", at, "c", b"secret", origin=(row.uuid, at)) for at in range(begin, begin + 4)]
        await log.append(writer, [*copies, sent(99, b"secret")])
        await log.touch(writer, ended_at=100)
    assert await done(log, "exp-1", SECRET) == [Copies("exp-2", 8, True)]
    assert await done(log, "exp-2", RedactionFilter(redacted_in=("exp-1",), until=(4,))) == []
    assert await done(log, "exp-1", RedactionFilter(channels=("c",))) == [Copies("exp-2", 5, True)]

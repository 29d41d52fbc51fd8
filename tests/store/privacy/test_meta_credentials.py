"""Credentials in the meta of recordings: `verify` reports them, and `redact --meta` masks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Experiment, NewEvent
from messager_store.errors import DamagedStore, ExperimentBusy
from messager_store.maintenance.verify import verify
from messager_store.privacy.meta_credentials import mask_meta
from tests.store.privacy.test_redaction import on_disk
from tests.support import messager, sql
from tests.support.command_line import one_line

OLD = {"command": ["run", "--passphrase", "hunter2", "--seed", "7"], "host": "h"}
"""Meta of a recorder of an earlier version that masked less."""


async def recorded(log: EventLog, *, ended: bool = True) -> Experiment:
    of = await log.create_experiment("e1", name=None, tags=[], meta={"config": {"jwt": "hunter2"}, "seed": 7})
    writer = await log.register(of, role="messager", meta=OLD)
    await log.append(writer, [NewEvent("sent", 1, "c", b"x")])
    if ended:
        await log.touch(writer, ended_at=1)
    return of


async def test_verify_names_the_recorder_and_the_place_of_a_credential(log: EventLog) -> None:
    verdict = await verify(log, await recorded(log))
    assert verdict.problems == []
    [note] = [note for note in verdict.notes if "credential" in note]
    assert "meta: config.jwt; recorder 1: command[2]" in note and "`messager redact e1 --meta`" in note
    assert "hunter2" not in note


async def test_credentials_in_meta_are_masked_and_their_recorder_is_sealed_again(log: EventLog, store: str) -> None:
    of = await recorded(log)
    assert b"hunter2" in on_disk(store)
    assert await mask_meta(log, of, dry_run=True) == ["meta: config.jwt", "recorder 1: command[2]"]
    assert b"hunter2" in on_disk(store)
    assert await mask_meta(log, of) == ["meta: config.jwt", "recorder 1: command[2]"]
    assert b"hunter2" not in on_disk(store)
    of = await log.experiment("e1")
    assert of.meta == {"config": {"jwt": "***"}, "seed": 7}
    [row] = await log.recorders(of)
    assert row.meta == {"command": ["run", "--passphrase", "***", "--seed", "7"], "host": "h"}
    verdict = await verify(log, of)
    assert (verdict.problems, verdict.notes) == ([], [])
    assert await mask_meta(log, of) == []


async def test_masking_does_not_confirm_a_changed_row(log: EventLog, store: str) -> None:
    of = await recorded(log)
    sql(store, "UPDATE recorder SET started_at = 1")
    with pytest.raises(DamagedStore, match="recorder 1: its row was changed since it ended"):
        await mask_meta(log, of)
    assert (await log.experiment("e1")).meta["config"] == {"jwt": "hunter2"}


async def test_meta_is_not_masked_while_a_recorder_is_alive(log: EventLog) -> None:
    of = await recorded(log, ended=False)
    with pytest.raises(ExperimentBusy, match="recorder 1"):
        await mask_meta(log, of)
    assert (await log.experiment("e1")).meta["config"] == {"jwt": "hunter2"}


async def test_redact_meta_shows_the_places_asks_and_masks(tmp_path: Path) -> None:
    async with EventLog.open(str(tmp_path / "messager.db")) as log:
        await recorded(log)

    def run(*arguments: str) -> Any:
        return messager(*arguments, cwd=tmp_path)

    one_line(run("redact", "e1", "--meta", "--ids"), 2, "--meta")
    one_line(run("redact", "e1", "--meta"), 2, "--yes")
    planned = run("redact", "e1", "--meta", "--dry-run")
    assert planned.returncode == 0
    assert "meta: config.jwt" in planned.stderr and "recorder 1: command[2]" in planned.stderr
    assert "hunter2" in run("export", "e1", "-o", "-").stdout
    done = run("redact", "e1", "--meta", "--yes")
    head = json.loads(run("info", "e1", "--json").stdout)["head"]
    assert done.stdout == f"masked 2 credentials in the meta of e1; its head is {head}\n", done.stderr
    assert done.returncode == 0
    assert "hunter2" not in run("export", "e1", "-o", "-").stdout
    again = run("redact", "e1", "--meta", "--yes")
    assert (again.returncode, again.stdout) == (1, "the meta of e1 holds no credentials: nothing to mask\n")

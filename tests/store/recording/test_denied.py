"""A store that this user may not reach, or whose file system is gone: events are spooled, and that is said."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager
from messager_store import EventLog
from messager_store.cli.commands.status import _status
from messager_store.errors import StoreUnavailable
from messager_store.queries.status import status
from tests.store.recording.test_auto_recorder import said, say
from tests.store.recording.test_store_never_came import drained
from tests.support.users import folder_of_nobody, unprivileged

pytestmark = [pytest.mark.sqlite, pytest.mark.usefixtures("quick")]


@pytest.fixture
async def folder(monkeypatch: pytest.MonkeyPatch, store: str) -> AsyncIterator[Path]:
    """Folder of an unprivileged user, with the state folder of that user, and a store in a folder."""
    monkeypatch.setenv("MESSAGER_STORE", store)
    async with Messager(MemoryBroker(), "warm"):  # imports what another user may not be able to read
        pass
    with folder_of_nobody() as made, unprivileged():
        (made / "shut").mkdir()
        monkeypatch.setenv("XDG_STATE_HOME", str(made / "state"))
        monkeypatch.setenv("MESSAGER_STORE", str(made / "shut" / "log.db"))
        await (await EventLog.open(str(made / "shut" / "log.db"))).close()
        yield made


async def test_a_recorder_that_may_not_search_the_folder_of_its_store_spools_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(folder / "shut" / "log.db")
    (folder / "shut").chmod(0)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 3)
        told = capsys.readouterr().err
    spools = folder / "state" / "messager" / "spool"
    assert f"{store} is not available: Permission denied; events of e1 are kept in {spools}/" in told
    assert "3 events of e1 wait in" in capsys.readouterr().err
    with pytest.raises(StoreUnavailable, match=f"Permission denied; 3 events for it wait in {spools}/"):
        await _status(None, 60, 1, store)
    (folder / "shut").chmod(0o700)
    [done] = await drained(store)
    assert done.reason is None and await said(store) == [0, 1, 2]


async def test_a_recorder_that_may_only_read_its_store_spools_and_status_says_so(folder: Path) -> None:
    store = str(folder / "shut" / "log.db")
    (folder / "shut" / "log.db").chmod(0o400)
    (folder / "shut").chmod(0o500)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 3)
    async with EventLog.open(store) as log:
        found = await status(log)
    assert [info.events for info in found.spools] == [3]
    assert any("no right to write" in problem.what for problem in found.problems)


@pytest.mark.parametrize("number", [errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ENAMETOOLONG])
async def test_a_store_whose_file_system_does_not_answer_is_unreachable(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "mount" / (("n" * 300) if number == errno.ENAMETOOLONG else "log.db"))
    (tmp_path / "mount").mkdir()
    monkeypatch.setenv("MESSAGER_STORE", store)
    stat = os.stat

    def gone(path: Any, **options: Any) -> os.stat_result:
        if isinstance(path, str | Path) and str(path).startswith(str(tmp_path / "mount")):
            raise OSError(number, os.strerror(number))
        return stat(path, **options)

    if number != errno.ENAMETOOLONG:
        monkeypatch.setattr(os, "stat", gone)
    async with Messager(MemoryBroker(), "e1") as messager:
        await say(messager, 2)
    told = capsys.readouterr().err
    assert os.strerror(number) in told and "2 events of e1 wait in" in told
    with pytest.raises(StoreUnavailable, match=os.strerror(number)):
        await EventLog.open(store, create=False)

"""Files of an earlier revision can be opened, verified, read, replayed, drained, unpacked and imported."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from messager import MemoryBroker
from messager_store import EventLog, Replay
from tests.support import MESSAGER

EARLIER = Path(__file__).resolve().parent.parent / "data" / "revision_0002"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """Copy of the files. The header of the spool has the path of the copied store."""
    shutil.copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    folder = tmp_path / "spools"
    folder.mkdir()
    header, _, frames = (tmp_path / "crashed.spool").read_bytes().partition(b"\n")
    facts = json.loads(header) | {"store": str(tmp_path / "store.db")}
    (folder / f"{facts['recorder']}.spool").write_bytes(json.dumps(facts).encode() + b"\n" + frames)
    return tmp_path


def messager(folder: Path, *words: str, code: int = 0) -> str:
    done = subprocess.run([*MESSAGER, *words], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    return done.stdout


def events(folder: Path, exp: str, store: str = "store.db") -> list[dict[str, object]]:
    return [json.loads(line) for line in messager(folder, "events", exp, "--json", "--store", store).splitlines()]


def printed_then(exp: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (EARLIER / f"{exp}.events.json").read_text().splitlines()]


@pytest.mark.sqlite
@pytest.mark.parametrize("exp", ["werewolf", "tapped", "crashed"])
def test_a_store_gives_the_events_it_gave_then(earlier: Path, exp: str) -> None:
    assert events(earlier, exp) == printed_then(exp)


@pytest.mark.sqlite
def test_its_chains_verify_after_the_spool_is_drained_and_the_crash_repaired(earlier: Path) -> None:
    messager(earlier, "drain", "--spool", "spools", "--store", "store.db")
    messager(earlier, "repair", "--store", "store.db")
    said = [json.loads(str(entry["payload"]))["n"] for entry in events(earlier, "crashed") if entry["kind"] == "sent"]
    assert said == list(range(12))
    messager(earlier, "verify", "--all", "--store", "store.db")


@pytest.mark.sqlite
@pytest.mark.parametrize("exp", ["werewolf", "tapped"])
def test_a_pack_is_unpacked_with_its_head(earlier: Path, exp: str) -> None:
    messager(earlier, "unpack", f"{exp}.pack", "--store", "new.db")
    assert events(earlier, exp, "new.db") == printed_then(exp)


@pytest.mark.sqlite
def test_an_export_is_imported_and_equal_to_the_recording(earlier: Path) -> None:
    messager(earlier, "import", "werewolf.jsonl", "--exp", "again", "--store", "store.db")
    messager(earlier, "diff", "werewolf", "again", "--store", "store.db")


@pytest.mark.sqlite
async def test_its_messages_are_replayed(earlier: Path) -> None:
    sent = [entry for entry in printed_then("werewolf") if entry["kind"] == "sent" and not entry.get("redacted")]
    async with EventLog.open(str(earlier / "store.db")) as log:
        report = await Replay(log, "werewolf", MemoryBroker(), speed="max").run()
    assert report.published == len(sent)

"""Files of an earlier revision can be upgraded, verified, read, continued, drained, unpacked and imported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from messager import MessageRecord
from messager_store import EventLog, Recorder
from tests.support import messager as run
from tests.support import sql

EARLIER = Path(__file__).resolve().parent.parent / "data" / "revision_0002"
STORES = {
    "store": ["werewolf", "tapped", "crashed"],
    "everything": ["first", "first-open", "everything", "secret", "killed", "imported", "imported-redacted"],
}
EXPERIMENTS = [(store, exp) for store, exps in STORES.items() for exp in exps]
PACKS = [
    ("store", "werewolf"),
    ("store", "tapped"),
    *(("everything", exp) for exp in ("first", "everything", "secret")),
]
EXPORTS = [("store", "werewolf"), *(("everything", exp) for exp in ("first", "everything", "secret"))]
UNCLEAN = dict.fromkeys(("tapped", "crashed", "first-open", "killed"), 1)
"""Exit codes of verify for experiments with a recorder that ended uncleanly."""
SPOOLS = [("store", "crashed"), ("everything", "killed"), ("everything", "first-open")]

pytestmark = pytest.mark.sqlite


def each(pairs: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Run a test for each experiment in `make nightly`, and for the one with every kind of event in `make test`."""
    chosen = ("everything", "everything") if ("everything", "everything") in pairs else pairs[0]
    marks = {pair: () if pair == chosen else pytest.mark.nightly for pair in pairs}
    return pytest.mark.parametrize(("store", "exp"), [pytest.param(*pair, marks=marks[pair]) for pair in pairs])


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, with upgraded stores."""
    folder = tmp_path_factory.mktemp("upgraded")
    shutil.copytree(EARLIER, folder, dirs_exist_ok=True)
    for store in STORES:
        messager(folder, "db", "upgrade", store=store)
        messager(folder, "db", "check", store=store)
    return folder


@pytest.fixture
def earlier(upgraded: Path, tmp_path: Path) -> Path:
    """Copy of the files, with upgraded stores. The headers of the spools have the paths of the copied stores."""
    shutil.copytree(upgraded, tmp_path, dirs_exist_ok=True)
    for store, exp in SPOOLS:
        header, _, frames = (tmp_path / f"{exp}.spool").read_bytes().partition(b"\n")
        facts = json.loads(header) | {"store": str(tmp_path / f"{store}.db")}
        copied = tmp_path / f"{store}-spools" / f"{facts['recorder']}.spool"
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes(json.dumps(facts).encode() + b"\n" + frames)
    return tmp_path


def messager(folder: Path, *words: str, store: str, code: int = 0) -> str:
    done = run(*words, "--store", f"{store}.db", cwd=folder)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return str(done.stdout)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def events(folder: Path, exp: str, store: str) -> list[dict[str, Any]]:
    return lines(messager(folder, "events", exp, "--json", store=store))


def printed_then(exp: str, what: str = "events") -> list[dict[str, Any]]:
    name = "everything" if exp == "imported" else exp
    return lines((EARLIER / f"{name}.{what}.json").read_text())


def info_then(exp: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EARLIER / f"{exp}.info.json").read_text())
    return found


def parts_of(now: Any, then: Any) -> Any:
    """Return what `now` has at the places of `then`: later revisions add fields."""
    if isinstance(then, dict) and isinstance(now, dict):
        return {key: parts_of(now[key], value) for key, value in then.items() if key in now}
    if isinstance(then, list) and isinstance(now, list) and len(now) == len(then):
        return [parts_of(one, other) for one, other in zip(now, then, strict=True)]
    return now


def chain_versions(folder: Path, store: str, exp: str) -> list[int]:
    """Return the chain versions of the recorders of an experiment, in order of ordinal."""
    query = (
        "SELECT r.chain_version FROM recorder r JOIN experiment x ON x.id = r.experiment_id "
        f"WHERE x.exp_id = '{exp}' ORDER BY r.ordinal"
    )
    return [version for (version,) in sql(str(folder / f"{store}.db"), query)]


def problems(folder: Path, store: str, exp: str) -> list[str]:
    """Return what verify finds wrong, apart from the unclean ends of the killed recorders."""
    done = run("verify", exp, "--json", "--store", f"{store}.db", cwd=folder)
    found: list[str] = json.loads(done.stdout)["problems"]
    return [problem for problem in found if "ended uncleanly" not in problem]


@each(EXPERIMENTS)
def test_a_store_gives_the_events_it_gave_then(earlier: Path, store: str, exp: str) -> None:
    assert events(earlier, exp, store) == printed_then(exp)


@each(EXPERIMENTS)
def test_info_says_what_it_said_then(earlier: Path, store: str, exp: str) -> None:
    then = info_then(exp)
    assert parts_of(json.loads(messager(earlier, "info", exp, "--json", store=store)), then) == then


@pytest.mark.parametrize("store", STORES)
def test_verify_finds_the_heads_of_then_and_no_other_problems(earlier: Path, store: str) -> None:
    then = json.loads((EARLIER / f"{store}.verify.json").read_text())
    assert [verdict["exp_id"] for verdict in then] == STORES[store]
    now = json.loads(messager(earlier, "verify", "--all", "--json", store=store, code=1))
    assert parts_of(now, then) == then


@each(SPOOLS)
def test_a_killed_recorder_is_drained_repaired_and_its_experiment_closed(
    earlier: Path, upgraded: Path, store: str, exp: str
) -> None:
    before = printed_then(exp)
    messager(earlier, "drain", "--spool", f"{store}-spools", store=store)
    assert chain_versions(earlier, store, exp) == chain_versions(upgraded, store, exp)
    messager(earlier, "repair", store=store)
    after = events(earlier, exp, store)
    assert [entry for entry in after if entry["cursor"] in {old["cursor"] for old in before}] == before
    assert len(after) > len(before)
    assert problems(earlier, store, exp) == []
    messager(earlier, "close", exp, store=store)
    assert problems(earlier, store, exp) == []


def test_what_the_killed_process_had_sent_is_drained(earlier: Path) -> None:
    messager(earlier, "drain", "--spool", "store-spools", store="store")
    said = [
        json.loads(str(entry["payload"]))["n"]
        for entry in events(earlier, "crashed", "store")
        if entry["kind"] == "sent"
    ]
    assert said == list(range(12))
    messager(earlier, "drain", "--spool", "everything-spools", store="everything")
    for exp in ("killed", "first-open"):
        payloads = [entry["payload"] for entry in events(earlier, exp, "everything") if entry["kind"] == "sent"]
        assert [f'{{"content": "spooled {n}"}}' in payloads for n in range(6)] == [True] * 6


@each([("everything", "first-open"), ("everything", "secret")])
async def test_a_new_recorder_joins_an_open_experiment_with_its_own_chain_version(
    earlier: Path, upgraded: Path, store: str, exp: str
) -> None:
    async with EventLog.open(str(earlier / f"{store}.db")) as log, Recorder(log, exp) as recorder:
        recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b"later"))
    assert events(earlier, exp, store)[-1]["payload"] == "later"
    assert chain_versions(earlier, store, exp) == [*chain_versions(upgraded, store, exp), 3]
    assert problems(earlier, store, exp) == []
    messager(earlier, "close", exp, store=store)
    assert problems(earlier, store, exp) == []


@each(PACKS)
def test_a_pack_is_unpacked_with_its_head(earlier: Path, store: str, exp: str) -> None:
    messager(earlier, "unpack", f"{exp}.pack", "--head", info_then(exp)["head"], store="new")
    assert events(earlier, exp, "new") == printed_then(exp)
    assert problems(earlier, "new", exp) == []


@each(EXPORTS)
def test_an_export_is_imported_and_equal_to_the_recording(earlier: Path, store: str, exp: str) -> None:
    messager(earlier, "import", f"{exp}.jsonl", "--exp", "again", store=store)
    messager(earlier, "diff", exp, "again", store=store)


@pytest.mark.parametrize("store", [pytest.param("store", marks=pytest.mark.nightly), "everything"])
def test_an_upgraded_store_is_downgraded_and_upgraded_again(earlier: Path, store: str) -> None:
    messager(earlier, "db", "downgrade", "0002", "--yes", store=store)
    assert messager(earlier, "db", "current", store=store) == "0002\n"
    messager(earlier, "db", "upgrade", store=store)
    messager(earlier, "db", "check", store=store)
    for exp in STORES[store]:
        assert events(earlier, exp, store) == printed_then(exp)
        messager(
            earlier, "verify", exp, "--head", info_then(exp)["head"], "--json", store=store, code=UNCLEAN.get(exp, 0)
        )


async def test_a_store_that_was_continued_is_not_downgraded(earlier: Path) -> None:
    async with EventLog.open(str(earlier / "everything.db")) as log, Recorder(log, "secret") as recorder:
        recorder.after(MessageRecord("sent", recorder.clock.now(), "c", b"later"))
    refused = run("db", "downgrade", "0002", "--yes", "--store", "everything.db", cwd=earlier)
    assert (
        refused.returncode == 2
        and "chains of recorders that began since 0003 would no longer verify (secret)" in refused.stderr
    )
    assert messager(earlier, "db", "current", store="everything") == "0003\n"
    assert problems(earlier, "everything", "secret") == []

"""`Run`: one experiment for notebooks, synchronous, and its table in the programs that people use."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, NewEvent, Run, StoreError
from messager_store.errors import ExperimentNotFound, StoreNotFound
from messager_store.html_table import SHOWN
from messager_store.run_card import drawing
from tests.support import nightly_after
from tests.support.logs import filled, listed, sent

BEGAN = 1_700_000_000_000_000_000
HOUR = 3_600_000_000_000


@pytest.fixture
async def kept(log: EventLog, store: str) -> str:
    """A store with an experiment of ten messages by two agents, and a mark."""
    said = [sent(BEGAN + at * HOUR, b'{"content": "hi %d"}' % at, from_id=at % 2, to_id="x") for at in range(10)]
    mark = NewEvent("mark", BEGAN + 5 * HOUR - 1, None, b"", meta={"name": "night", "fields": {}})
    of = await filled(log, [*said, mark], "exp-1")
    await log.tag(of, ["<b>bold</b>"])
    return store


async def test_a_run_is_used_while_an_event_loop_is_running(kept: str, log: EventLog) -> None:
    asyncio.get_running_loop()
    events = await listed(log.read("exp-1"))
    with Run("exp-1", store=kept) as run:
        assert run.events() == events
        assert run.messages(from_ids=1) == [entry for entry in events if entry.from_id == 1]
        assert run.table().num_rows == 10
        assert run.table(events=True).num_rows == 11
        assert run.table(since="mark:night", limit=2)["text"].to_pylist() == ["hi 5", "hi 6"]
        assert run.sql("select from_id, count(*) from messages group by 1 order by 1").rows == [("0", 5), ("1", 5)]
        assert (run.exp_id, run.store) == ("exp-1", kept)


async def test_an_agent_is_found_as_the_table_shows_it_unless_another_has_this_id(log: EventLog, store: str) -> None:
    ids = [3, 4, "4", 0.5, {"b": 1}, "true"]
    await filled(log, [sent(BEGAN + at, b"{}", from_id=agent, to_id=9) for at, agent in enumerate(ids)])
    with Run("e1", store=store) as run:
        shown = run.table()["from_id"].to_pylist()
        assert [[entry.from_id for entry in run.messages(agents=[agent])] for agent in shown] == [
            *([3], ["4"], ["4"], [0.5], [{"b": 1}], ["true"])
        ]
        assert [entry.from_id for entry in run.messages(from_ids=[4, True, "nobody"])] == [4, "true"]
        assert run.table(agents=["3"]).num_rows == run.count(between=("3", "9")).messages == 1


async def test_the_verbs_are_methods_with_records_for_data_frames(kept: str, tmp_path: Path) -> None:
    with Run("exp-1", store=kept) as run:
        assert run.count("from", since="mark:night").records() == [
            {"from": "1", "messages": 3, "payload_bytes": 57},
            {"from": "0", "messages": 2, "payload_bytes": 38},
        ]
        by_time = run.count("5h", from_ids=0).records()
        assert [row["5h"] for row in by_time] == sorted({iso_hour(at) for at in range(0, 10, 2)})
        assert run.count(limit=3).messages == 3
        assert repr(run.count("from")) == "<Counts by from: 2 rows, 10 messages>"
        assert repr(run.count("kind", events=True, limit=1)) == "<Counts by kind: 1 row, 1 event>"
        assert run.delays().records() == [] and run.delays(replies=True).records() == []
        assert [row["problem"] for row in run.problems().records()] == []
        assert run.sql("select 1 as one, 'a' as two").records() == [{"one": 1, "two": "a"}]
        assert run.diff("exp-1").equal

    async with EventLog.open(str(tmp_path / "other.db")) as other:
        said = [sent(BEGAN + at * HOUR, b'{"content": "hi %d"}' % at, from_id=at % 2, to_id="x") for at in range(9)]
        await filled(other, [*said, sent(BEGAN + 9 * HOUR, b"<b>bye</b>")], "exp-2")
    with Run("exp-1", store=kept) as run, Run(store=str(tmp_path / "other.db")) as other_run:
        found = run.diff(other_run)
        assert (found.messages.equal, found.messages.changed) == (9, 1)
        assert "&lt;b&gt;bye" in found._repr_html_() and "<b>" not in found._repr_html_()
        assert run.diff(other_run, limit=9).equal


def iso_hour(at: int) -> datetime:
    """Return the start of the bucket of five hours that holds this hour of the experiment."""
    ns = BEGAN + at * HOUR
    return datetime.fromtimestamp((ns - ns % (5 * HOUR)) / 1e9, UTC)


async def test_results_are_tables_in_notebooks_and_escape_what_was_recorded(log: EventLog, store: str) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    said = [sent(BEGAN + at, b"{}", from_id=f"{hostile}{at}", to_id=hostile) for at in range(SHOWN + 2)]
    gap = NewEvent("gap", BEGAN, None, b"", meta={"reason": hostile, "since": BEGAN, "until": BEGAN + 1, "count": None})
    await filled(log, [*said, gap], "exp-1")
    with Run("exp-1", store=store) as run:
        shown = [run.count("from")._repr_html_(), run.problems()._repr_html_()]
        shown.append(run.sql("select from_id, ts, null as missing from messages")._repr_html_())
    for html in shown:
        assert "<script>" not in html and "\x1b" not in html and "&lt;script&gt;" in html
    assert shown[0].count("<tr>") == SHOWN + 1 and "and 2 more rows" in shown[0]
    assert shown[1].startswith("<div>1 gap; no listener was recorded, so nothing is known about arrivals</div><table>")


async def test_a_closed_run_says_so_and_a_wrong_name_is_an_error(kept: str, tmp_path: Path) -> None:
    run = Run(store=kept)
    run.close()
    run.close()
    with pytest.raises(StoreError, match="closed"):
        run.table()
    with pytest.raises(ExperimentNotFound):
        Run("exp-2", store=kept)
    with pytest.raises(StoreNotFound):
        Run("exp-1", store=str(tmp_path / "none.db"))


@pytest.mark.parametrize(
    "end", nightly_after(1, ["sys.exit()", "run.close()", "del run; gc.collect()", "Run(store=run.store).count()"])
)
async def test_a_forked_process_leaves_the_run_to_its_parent(kept: str, end: str) -> None:
    program = f"""
import gc, os, sys
from messager_store import Run, StoreError
run = Run("exp-1", store={kept!r})
if os.fork() == 0:
    try:
        run.count()
    except StoreError as error:
        print(error, flush=True)
    {end}
    sys.exit()
print(os.wait()[1], run.count().messages)
"""
    # Python 3.12 warns of every fork of a process that has threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    error, result = done.stdout.splitlines()
    assert error.endswith("belongs to the process that forked this one. Open it with Run(...).")
    assert result == "0 10" and done.returncode == 0 and not done.stderr, done.stderr


async def test_filters_belong_into_the_selection(kept: str) -> None:
    from messager_store import Selection

    with Run("exp-1", store=kept) as run:
        assert run.table(Selection(from_ids=1)).num_rows == 5
        with pytest.raises(StoreError, match="selection"):
            run.table(Selection(from_ids=1), limit=3)


@pytest.mark.parametrize(
    "end", nightly_after(1, ["run = None; gc.collect()", "run.close()", "sys.exit()", "run.cycle = run; del run"])
)
async def test_a_run_ends_without_a_warning(kept: str, end: str) -> None:
    program = f"""
import gc, sys
from messager_store import Run
run = Run("exp-1", store=sys.argv[1])
assert run.table().num_rows == 10
{end}
"""
    command = [sys.executable, "-W", "error", "-c", program, kept]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


async def test_the_card_escapes_what_was_recorded(log: EventLog, store: str) -> None:
    of = await log.create_experiment("exp-1", name="<script>alert(1)</script>", tags=["<i>"])
    writer = await log.register(of, role="messager")
    await log.append(writer, [sent(BEGAN + at * HOUR, from_id="<img src=x>", to_id=2) for at in range(5)])
    with Run("exp-1", store=store) as run:
        card = run._repr_html_()
        assert repr(run) == f"Run('exp-1', store={store!r})"
    for recorded in ("<script>", "<i>", "<img"):
        assert recorded not in card
    assert "&lt;img src=x&gt;" in card and "&lt;i&gt;" in card and "5 sent" in card
    assert card.count("<rect") == 5


async def test_the_card_of_an_experiment_without_events(log: EventLog, store: str) -> None:
    await log.create_experiment("exp-1")
    with Run(store=store) as run:
        assert "no events" in run._repr_html_()


def test_bars_stand_where_the_messages_are() -> None:
    found = drawing({0: 1, 60: 4, 600: 2})
    assert [part.split("'")[0] for part in found.split("x='")[1:]] == ["0.0", "320.0"]
    assert drawing({5: 3}).count("<rect") == 1
    assert drawing({}) == ""


@pytest.mark.sqlite
async def test_without_pyarrow_one_line_says_what_to_install(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with Run("exp-1", store=kept) as run, pytest.raises(StoreError, match=r"pip install 'duckdb>="):
        run.table()


@pytest.mark.sqlite
class TestPrograms:
    """The table in other programs, as docs/analysis.md shows it."""

    async def test_pandas(self, kept: str) -> None:
        with Run("exp-1", store=kept) as run:
            frame = run.table().to_pandas()
        assert frame.groupby("from_id").size().to_dict() == {"0": 5, "1": 5}
        assert frame["time"].dt.hour.tolist()[:3] == [22, 23, 0]

    async def test_polars(self, kept: str) -> None:
        import polars

        with Run("exp-1", store=kept) as run:
            frame: Any = polars.from_arrow(run.table())
        assert dict(frame.group_by("from_id").len().rows()) == {"0": 5, "1": 5}
        assert frame["mark"].to_list() == [None] * 5 + ["night"] * 5

    async def test_duckdb(self, kept: str) -> None:
        import duckdb

        with Run("exp-1", store=kept) as run:
            messages = run.table()
        assert messages.num_rows == 10  # found by its name in the next line
        query = "SELECT mark, count(*), max(time) - min(time) FROM messages GROUP BY 1 ORDER BY 1 NULLS LAST"
        with duckdb.connect() as connection:
            rows = connection.execute(query).fetchall()
        assert rows == [("night", 5, timedelta(hours=4)), (None, 5, timedelta(hours=4))]

    async def test_a_notebook(self, kept: str, tmp_path: Path) -> None:
        import nbclient
        import nbformat

        code = [
            "import asyncio; asyncio.get_running_loop()\nfrom messager_store import Run",
            f"run = Run('exp-1', store={kept!r})\nrun",
            "run.table().to_pandas()[['from_id', 'text']].tail(1)",
        ]
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in code])
        client = nbclient.NotebookClient(book, timeout=60, resources={"metadata": {"path": str(tmp_path)}})
        await client.async_execute()
        shown = [output["data"] for cell in book.cells for output in cell.get("outputs", ())]
        assert "<svg" in shown[0]["text/html"]
        assert "hi 9" in shown[1]["text/plain"]


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"agent": 5}, "unknown filter 'agent': did you mean agents?"),
        ({"by": "mark"}, "unknown filter 'by'. The filters"),
    ],
)
async def test_an_unknown_filter_is_named(kept: str, filters: dict[str, Any], words: str) -> None:
    with Run("exp-1", store=kept) as run:
        for method in (run.table, run.messages, run.events, run.count, run.problems):
            with pytest.raises(StoreError, match=re.escape(words)):
                method(**filters)

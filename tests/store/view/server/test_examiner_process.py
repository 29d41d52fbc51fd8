"""Answers about whole experiments from another process."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from messager_store import EventLog, NewEvent
from messager_store.errors import ExaminerFailed
from messager_store.log.selection import Selection
from messager_store.view.server.examiner import Examiner, indexed_by
from messager_store.view.server.examiner_process import ExaminerProcess
from messager_store.view.server.served_store import ServedStore
from tests.support.logs import filled, sent

MINUTE = 60_000_000_000
QUESTIONS: tuple[tuple[Any, list[tuple[str, str]]], ...] = (
    ("indexing", [("again", "")]),
    ("activity", [("since", "0"), ("until", str(9 * MINUTE)), ("by", "from"), ("agent", "1"), ("agent", '"\\ud800"')]),
    ("activity", [("since", "0"), ("until", str(9 * MINUTE)), ("by", "channel")]),
    ("activity", [("since", "0"), ("until", str(9 * MINUTE)), ("by", "all")]),
    ("pairs", []),
    ("pairs", [("across", "channel")]),
    ("first", []),
    ("indexed", []),
    ("indexed", [("counted", "")]),
    ("problems", []),
    ("verify", []),
)


@pytest.fixture
async def society(log: EventLog) -> None:
    names = [1, "1", "\ud800", None]
    await filled(
        log, [sent(at * MINUTE, b"%d" % at, f"c\udcff{at % 3}", from_id=names[at % 4], to_id=0) for at in range(9)]
    )


async def answered(
    examiner: Examiner | ExaminerProcess, question: Any, exp_id: str = "e1", query: list[tuple[str, str]] | None = None
) -> dict[str, Any]:
    """Ask, and again while the answer is that the experiment is being indexed, as a page does."""
    while (answer := await examiner.answer(question, exp_id, query or [])).get("indexing"):
        query = [given for given in query or [] if given[0] != "again"]
    return answer


@pytest.mark.usefixtures("society")
async def test_another_process_answers_and_refuses_as_this_one_does(store: str) -> None:
    async with Examiner(store) as here, ExaminerProcess(store) as there:
        for question, query in QUESTIONS:
            expected = json.loads(json.dumps(await answered(here, question, "e1", query)))
            assert await answered(there, question, "e1", query) == expected, question
        for exp_id, more, status, words in (
            ("none", [], 404, "there is no experiment"),
            ("e1", [("agent", "x")], 400, "not JSON"),
        ):
            with pytest.raises(ExaminerFailed, match=words) as caught:
                await answered(there, "pairs", exp_id, more)
            assert caught.value.status == status


@pytest.mark.usefixtures("society")
async def test_a_process_that_ends_refuses_what_was_asked_and_another_one_answers(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = asyncio.create_subprocess_exec

    async def remembered(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*command, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", remembered)
    async with ExaminerProcess(store) as examiner:
        expected = await answered(examiner, "pairs")
        started[0].send_signal(signal.SIGSTOP)  # it must not answer before it ends
        asked = asyncio.create_task(examiner.answer("verify", "e1"))
        await asyncio.sleep(0)
        started[0].kill()
        with pytest.raises(ExaminerFailed, match=r"the process that counts ended \(-9\)"):
            await asked
        assert await answered(examiner, "pairs") == expected
        assert len(started) == 2
    assert started[1].returncode is not None  # it has ended, or was killed because it took too long


@pytest.mark.usefixtures("society")
async def test_the_process_ends_if_the_server_is_killed(store: str) -> None:
    """Its input is closed then."""
    command = [sys.executable, "-P", "-m", "messager_store.view.server.examiner_program"]
    asked = json.dumps({"number": 1, "question": "verify", "exp_id": "e1", "query": []})
    given = f"{json.dumps(store)}\n{asked}\n"
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(given.encode())
    assert json.loads(await process.stdout.readline())["answer"]["ok"]
    process.stdin.close()
    output, errors = await process.communicate()
    assert (process.returncode, output, errors) == (0, b"", b"")


@pytest.mark.usefixtures("society")
async def test_what_a_page_needs_first_is_read_when_the_process_starts_and_errors_wait_for_a_request(
    store: str,
) -> None:
    async with ExaminerProcess(store, "e1") as examiner:
        assert await answered(examiner, "first") == {}
    async with ExaminerProcess(store, "none") as examiner:
        with pytest.raises(ExaminerFailed, match="there is no experiment"):
            await examiner.answer("first", "none")


async def test_a_process_that_cannot_start_is_a_refusal(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    async with ExaminerProcess(store, "e1") as examiner:
        with pytest.raises(ExaminerFailed, match="the process that counts cannot be started: No such file"):
            await examiner.answer("pairs", "e1")


@pytest.mark.usefixtures("society")
async def test_the_messages_are_chosen_as_in_one_process(log: EventLog, store: str) -> None:
    of = await log.experiment("e1")
    listener = await log.register(of, role="tap")
    await log.append(listener, [NewEvent("received", at * MINUTE, "tapped", b"x") for at in range(3)])
    async with (
        ExaminerProcess(store) as examiner,
        ServedStore(store) as here,
        ServedStore(store, indexed_by(examiner)) as there,
    ):
        assert await answered(examiner, "indexing", "e1", [("again", "")]) == {"indexing": None}
        chosen = [await (await served.run("e1")).sources(Selection()) for served in (here, there)]
    assert vars(chosen[0]) == vars(chosen[1])
    assert set(chosen[1].listeners) >= {"tapped"}

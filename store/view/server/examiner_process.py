"""An examiner in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from messager.time_limit import time_limit

from ...child_process import kill
from ...errors import ExaminerFailed, StoreError

if TYPE_CHECKING:  # the process starts before this one imports what it does not need for that
    from .examiner import Query, Question

END_S = 2.0
"""Seconds that the process has to end by itself."""
_LONGEST = 1 << 30
"""Bytes of an answer, at most."""
_PROGRAM = "messager_store.view.server.examiner_program"


class _Asked(NamedTuple):
    """A question that has no answer yet."""

    line: bytes
    answer: asyncio.Future[dict[str, Any]]


class ExaminerProcess:
    """Answers from the store of a URL, made by a process of its own.

    If the process ends, its open questions raise `ExaminerFailed`, and the next one starts another. Use it as a context
    manager.
    """

    def __init__(self, url: str, first: str | None = None) -> None:
        """`first` is the experiment of which a page will be opened, if that is known."""
        self._url = url
        self._first = first
        self._preparing: asyncio.Task[None] | None = None
        self._number = 0
        self._open: dict[int, _Asked] = {}
        self._running: asyncio.Task[None] | None = None
        self._input: asyncio.StreamWriter | None = None
        """None until the process has started."""
        self._started = asyncio.Event()
        """Set if the process has started, or cannot be started."""

    async def __aenter__(self) -> ExaminerProcess:
        self._start()
        if self._first is not None:
            self._preparing = asyncio.create_task(self._prepare(self._first))
        await self._started.wait()
        return self

    async def __aexit__(self, *ignored: object) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait((self._running,))
        if self._preparing is not None:
            await self._preparing

    async def _prepare(self, exp: str) -> None:
        with contextlib.suppress(StoreError):  # requests meet its errors
            await self.answer("first", exp)

    def _start(self) -> None:
        """Start the process, unless it runs."""
        if self._running is None or self._running.done():
            self._input = None
            self._started = asyncio.Event()
            self._running = asyncio.create_task(self._run())

    async def answer(self, question: Question, exp_id: str, query: Query = ()) -> dict[str, Any]:
        """Answer, as `Examines.answer`."""
        self._start()
        self._number += 1
        text = {"number": self._number, "question": question, "exp_id": exp_id, "query": list(query)}
        asked = _Asked(json.dumps(text).encode() + b"\n", asyncio.get_running_loop().create_future())
        self._open[self._number] = asked
        if self._input is not None:
            self._input.write(asked.line)
        return await asked.answer

    async def _run(self) -> None:
        """Run the process until it ends, or until this is cancelled."""
        reason = "ended"
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", _PROGRAM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                process_group=0,  # Ctrl-C reaches only the server, which ends it
                limit=_LONGEST,
            )
            try:
                await self._exchange(process)
            finally:
                reason = f"ended ({await _ended(process)})"
        except OSError as error:
            reason = f"cannot be started: {error.strerror or error}"
        finally:
            self._started.set()
            left, self._open = self._open, {}
            for asked in left.values():
                if not asked.answer.done():
                    asked.answer.set_exception(
                        ExaminerFailed(f"the process that counts {reason}. Reload the page.", 503)
                    )

    async def _exchange(self, process: asyncio.subprocess.Process) -> None:
        """Send the questions, and receive the answers."""
        assert process.stdin is not None and process.stdout is not None
        self._input = process.stdin
        lines = [json.dumps(self._url).encode() + b"\n", *(asked.line for asked in self._open.values())]
        process.stdin.writelines(lines)
        self._started.set()
        while line := await process.stdout.readline():
            found = json.loads(line)
            answer = self._open.pop(found["number"]).answer
            if answer.done():  # nobody waits for it any more
                continue
            if "error" in found:
                answer.set_exception(ExaminerFailed(found["error"], found["status"]))
            else:
                answer.set_result(found["answer"])


async def _ended(process: asyncio.subprocess.Process) -> int:
    """End a process; return its exit code, which is negative for a signal."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with time_limit(END_S):
            return await process.wait()
    kill(process)
    return await process.wait()

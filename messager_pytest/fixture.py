"""The fixture `replay`: the object that a test calls to play its recording to live agents."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from uuid import uuid4

import pytest

from messager.errors import MessagerError
from messager_store.errors import JudgeFailed, StoreError, VirtualTimeRefused
from messager_store.lockstep.report import CastReport
from messager_store.matching.match import Match

from . import loops
from .agent_state import AgentState, Unawaited
from .failure_text import failure, raised
from .file_changes import Change
from .marks import BadMark, RecordingMark, agents_named, mark_of
from .playing import AgentCrashed, NotAnAgent, Played, checked_agent, play
from .recording_file import BadRecording, RecordingFile, locked, read_recording, unwritten, write_lines
from .recording_paths import SUFFIXES, Context, rerun, shown, similar

if TYPE_CHECKING:
    from messager.brokers.base import Broker
    from messager_store.lockstep.play import Agent

    from .new_recording import Made

T = TypeVar("T")
_OWN = ("messager_pytest", "messager_store")


class ReplayFixture:
    """Plays the recording of one test. Call it in a test; in an async test, `await replay.play(...)`."""

    def __init__(self, item: pytest.Item, config: pytest.Config) -> None:
        try:
            self._mark: RecordingMark = mark_of(item)
        except BadMark as error:
            _fail(str(error))
        self._mode: str = config.getoption("recording")
        self._broker: str | None = self._mark.broker or config.getoption("recording_broker")
        self._match: Match = self._mark.match or Match()
        self._test = item.nodeid
        base = Path(config.invocation_params.dir)
        self._shown = shown(self.path, base)
        again = rerun(item.nodeid, config.rootpath, base)
        match = self._mark.match
        ignored = None if match is None else match.own_ignore
        self._context = Context(self._shown, again, config.get_verbosity(), self._mark.patience, ignored)
        self._called = False
        self._playing: Coroutine[Any, Any, CastReport] | None = None
        self._made: Made | None = None
        self._accepted: list[tuple[RecordingFile, Played]] = []

    @property
    def path(self) -> Path:
        """Path of the recording."""
        return self._mark.path

    def __call__(self, agents: Any, agent: Agent | None = None) -> CastReport:
        """Play the recording to live agents in virtual time, and fail the test at the first divergence.

        `replay(3, seller)`: agent 3 is played by `seller`, an async function that takes a Messager. `replay({3: seller,
        7: buyer})`: several agents; a tuple of ids is the key of agents that share a Messager. Returns the report, an
        empty one if `--recording=new` made the recording.
        """
        __tracebackhide__ = True
        if loops.in_event_loop():
            _fail("`replay(...)` runs an event loop of its own: in an async test, use `await replay.play(...)`.")
        live = self._begin(agents, agent)
        file = self._read(live)
        if file is None:
            _, task = self._run(loops.virtual(loops.START_NS), self._make(live), live)
            if task is not None:
                _fail(f"{raised(task)}. No recording was made.", task.error)
            return CastReport()
        if self._broker is None:
            loop = loops.virtual(file.events[0].ts if file.events else None)
        else:
            loop = asyncio.new_event_loop()
        played, task = self._run(loop, self._play(file, live), live)
        return self._finish(file, played, task)

    def play(self, agents: Any, agent: Agent | None = None) -> Coroutine[Any, Any, CastReport]:
        """Play the recording to live agents in the event loop of an async test, in real time: `await replay.play(...)`.

        Arguments and result are those of `replay(...)`.
        """
        self._playing = self._played(agents, agent)
        return self._playing

    async def _played(self, agents: Any, agent: Agent | None) -> CastReport:
        __tracebackhide__ = True
        if not loops.in_event_loop():
            _fail("`replay.play(...)` needs asyncio: run this test on asyncio, or use `replay(...)` in a plain test.")
        live = self._begin(agents, agent)
        file = self._read(live)
        if file is None:
            await self._make(live)
            return CastReport()
        return self._finish(file, await self._play(file, live))

    def check_that_it_was_called(self) -> None:
        """Fail a test that asked for `replay` and did not call it: it compared nothing."""
        __tracebackhide__ = True
        if not self._called and self._playing is not None:
            self._playing.close()
            _fail(
                "`replay.play(...)` was not awaited. Use `await replay.play(...)` in an async test, or `replay(...)` "
                "in a plain one."
            )
        if not self._called:
            _fail("the test asks for `replay` and does not call it. Call `replay(AGENT, function)`, or leave it out.")

    def write_made(self) -> list[dict[str, Any]]:
        """Write the recording that was made. Return what was changed, for the end of the run."""
        if self._made is None:
            return []
        try:
            with locked(self.path):
                if self.path.exists():  # made by another test meanwhile
                    return []
                write_lines(self.path, self._made.lines)
        except BadRecording as error:
            _fail(str(error))
        return [Change(str(self.path), made=self._made.messages, end=self._made.end).to_dict()]

    def accepted(self) -> list[dict[str, Any]]:
        """Return what is to be taken over at the end of the run (see `taking_over`)."""
        if not self._accepted:
            return []
        from .accepting import Edits, check_playable, edits
        from .taking_over import accepted

        found = []
        for file, played in self._accepted:
            everything = Edits()
            agents = [agent for hook in played.heard for agent in hook.part.agents]
            for hook in played.heard:
                edit = edits(file, played.pairs(hook, file, self._match))
                everything.add(edit)
                found.append(accepted(self.path, self._test, hook.part.label, file.lines, edit))
            try:
                check_playable(everything, file, self._shown, agents)
            except BadRecording as error:
                _fail(str(error))
        return found

    def _begin(self, agents: Any, agent: Agent | None) -> dict[Any, Agent]:
        """Return the live agents with their functions."""
        __tracebackhide__ = True
        self._called = True
        given = agents if agent is None else {agents: agent}
        if not isinstance(given, Mapping) or not given:
            _fail(
                "`replay` takes an agent and an async function that plays it, or a dict of these: "
                "replay(3, seller), replay({3: seller, 7: buyer})."
            )
        for who, function in given.items():
            if not callable(function) or inspect.isclass(function):
                _fail(f"agent {who!r} is played by {function!r}. Give an async function that takes a Messager.")
        return {who: checked_agent(who, function) for who, function in given.items()}

    def _read(self, live: Mapping[Any, Agent]) -> RecordingFile | None:
        """Return the recording; None if it is missing and is to be made."""
        __tracebackhide__ = True
        try:
            if self._made is not None:
                return unwritten(self._made.lines, self.path)
            return read_recording(self.path)
        except FileNotFoundError:
            if self._mode == "new" and self.path.name.endswith(SUFFIXES):
                return None
            _fail(self._missing(live))
        except BadRecording as error:
            _fail(str(error))

    def _missing(self, live: Mapping[Any, Agent]) -> str:
        close = similar(self.path)
        meant = f": did you mean {close}?" if close else "."
        if not self.path.name.endswith(SUFFIXES):
            return (
                f"there is no recording {self._shown}{meant} "
                f"The name of a recording ends in {' or '.join(SUFFIXES)}: correct it in the mark of the test."
            )
        export = self._export()
        if not self.path.parent.is_dir():
            export = f"mkdir -p {quote(os.path.dirname(self._shown))} && {export}"
        lines = [
            f"there is no recording {self._shown}{meant} {'To make it' if close else 'Make it'}:",
            f"  of a recorded experiment:     {export}",
            f"  of the agents of this test:   {self._context.rerun} --recording=new",
        ]
        if not self._mark.given:
            lines.append("The name is that of the test, as the test has no mark `recording`.")
        if len(live) == 1:
            lines[2] += f"   (runs {agents_named(live)} alone)"
        return "\n".join(lines)

    def _export(self) -> str:
        return f"messager export EXP -o {quote(self._shown)}"

    async def _make(self, live: Mapping[Any, Agent]) -> None:
        """Make the recording that is missing. It is written when the test has passed."""
        __tracebackhide__ = True
        from messager.brokers.memory.broker import MemoryBroker

        from .new_recording import QUIET_REAL_S, QUIET_S, record

        exp_id = self.path.name.partition(".")[0]
        clock = loops.clock()
        quiet = QUIET_REAL_S if clock is None else QUIET_S
        try:
            made = await record(live, exp_id, self._test, MemoryBroker(), clock, quiet, self._mark.seconds)
            if not made.messages:
                _fail(
                    f"{agents_named(live)} alone said nothing, so there is no recording to make. Play all agents that "
                    f"talk in this test, or export a recorded experiment: {self._export()}"
                )
            self._made = made
        except AgentCrashed as error:
            if isinstance(error.__cause__, NotAnAgent):
                _fail(str(error.__cause__))
            _fail(f"{error}. No recording was made.", error.__cause__)
        except (BadRecording, StoreError, MessagerError) as error:
            _fail(str(error))

    async def _play(self, file: RecordingFile, live: Mapping[Any, Agent]) -> Played:
        __tracebackhide__ = True
        try:
            async with self._opened() as broker:
                to_exp = None if self._broker is None else f"test-{uuid4().hex[:12]}"
                return await play(
                    file, live, broker, loops.clock(), match=self._match, patience=self._mark.patience, to_exp=to_exp
                )
        except JudgeFailed as error:
            _fail(str(error), error.__cause__)
        except (StoreError, MessagerError, BadRecording) as error:
            _fail(f"{self._shown} cannot be replayed: {error}")

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Broker]:
        """Context with the broker, connected."""
        if self._broker is None:
            from messager.brokers.memory.broker import MemoryBroker

            yield MemoryBroker()
            return
        from messager.brokers.factory import open_broker

        try:
            broker = open_broker(self._broker)
        except ValueError as error:
            raise BadRecording(str(error)) from None
        await broker.connect()
        try:
            yield broker
        finally:
            await broker.close()

    def _run(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], live: Mapping[Any, Agent]
    ) -> tuple[T, Unawaited | None]:
        """Run a coroutine in this loop. Return its result, and the first exception that nothing has awaited."""
        __tracebackhide__ = True
        try:
            result, errors = loops.run(loop, coro)
        except pytest.fail.Exception as error:
            raise error.with_traceback(None)  # noqa: B904  # without the frames of the event loop
        first = errors[0] if errors else None
        if first is not None and first.state is None and len(live) == 1:
            first = replace(first, state=AgentState(agents_named(live)))
        return result, first

    def _finish(self, file: RecordingFile, played: Played, task: Unawaited | None = None) -> CastReport:
        """Compare, or take over what was said. `task` is an exception that nothing has awaited."""
        __tracebackhide__ = True
        report = played.report
        if isinstance(played.error, NotAnAgent):
            _fail(str(played.error))
        if isinstance(played.error, JudgeFailed):
            _fail(str(played.error), played.error.__cause__)
        if self._mode == "accept" and not report.crashed and task is None:
            self._accepted.append((file, played))
        elif not report.equal or task is not None:
            task = None if report.crashed else task
            error = played.error if task is None else task.error
            lines = file.line_numbers
            text = failure(report, lines, self._context, returned=played.returned, why_late=played.why_late, task=task)
            if _needs_real_time(error):
                text += "\nagents with connections need real time: use `await replay.play(...)` in an async test"
            _fail(text, error)
        return report


def _needs_real_time(error: BaseException | None) -> bool:
    """Return whether an agent raised because it used a connection in virtual time."""
    while error is not None and not isinstance(error, VirtualTimeRefused):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(text: str, cause: BaseException | None = None) -> NoReturn:
    """Fail the test with a text; with a cause, the traceback of that is shown as well."""
    __tracebackhide__ = True
    if cause is not None:
        cause.__traceback__ = _of_the_agent(cause.__traceback__)
    raise pytest.fail.Exception(text, pytrace=cause is not None) from cause


def _of_the_agent(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this project at its beginning."""
    at = trace
    while at is not None and at.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _OWN:
        at = at.tb_next
    return at or trace

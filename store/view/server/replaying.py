"""Control of a replay by the page: start one, or attach to one that runs, and drive it through its control socket.

A replay of the page runs in a process of its own (`replay_process`), which ends with the server. Every request uses a
connection of its own, so that a pause can end a step that waits for a slow subscriber.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from enum import Enum
from types import TracebackType
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from messager import channels
from messager.credentials import mask_text, without_credentials
from messager.errors import MessagerError

from ...errors import StoreError
from ...experiments.records import Experiment
from ...log.channel_map import ChannelMap
from ...log.event_log import EventLog
from ...log.selection import Selection
from ...replay.plan import make_plan
from ...replay.state import ReplayState
from . import control_client
from .event_stream import EventStream, StreamEvent
from .replay_process import ReplayProcess

LONGEST_REQUEST = 65_536
EVENT_S = 0.1
"""Seconds between two events for a page, at least."""
FIRST_TRY_S = 0.02
NEXT_TRY_S = 0.5
"""Seconds until the next attempt to connect to a socket that is not there: of a new process, and of another's."""
SHOWN = 10
"""Channels that a plan lists."""
CONTROL = ("pause", "resume", "step", "next", "seek", "speed")
"""Verbs of the control socket."""
NOT_BEGUN = (ReplayState.PLANNING.value, ReplayState.STOPPED.value)
"""States of a replay before it can be controlled: it is being made, or has failed."""


class Phase(Enum):
    """Phase of the replay that the page shows.

    NONE ──> STARTING ──> RUNNING ──> ENDED
                ^ '─────────────────> │ │
                '─────────────────────┘ │
    attached: NONE ──> RUNNING <──> ENDED
    """

    NONE = "none"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Refused(Exception):
    """A request that is answered with one line and a status of HTTP."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Replaying:
    """The replay of a page: `async with Replaying(store, broker, stop, allow=True) as replaying: replaying.routes()`.

    `store` is the store of the experiments and `broker` the URL onto which they are replayed. `control` is the socket
    of a replay that somebody else started; then none is started here. Without `allow`, the status is all there is.
    Streams end when `stop` is set, and a replay that was started here at the end of the block.
    """

    def __init__(
        self, store: str, broker: str, stop: asyncio.Event, *, allow: bool = False, control: str | None = None
    ) -> None:
        self._store, self._broker, self._allow, self._attached = store, broker, allow, control
        self._stop_streams = stop
        self._process: ReplayProcess | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._known: dict[str, Any] = {"phase": Phase.NONE.value, "status": None, "lines": [], "code": None}
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Replaying:
        if self._attached is not None:
            self._watcher = asyncio.create_task(self._watch_attached(self._attached))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.running:
            await self._process.end()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)

    def head(self) -> dict[str, Any] | None:
        """Return what the page needs to know before a replay is started; None if it has nothing to do with replays."""
        if not self._allow and self._attached is None:
            return None
        return {
            "allowed": self._allow,
            "attached": self._attached,
            "broker": None if self._attached is not None else without_credentials(self._broker),
        }

    def routes(self) -> list[Route]:
        """Return the routes under `/api/replay/`."""
        verbs: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "plan": self._plan,
            "start": self._start,
            "stop": self._stop,
            **{verb: self._control(verb) for verb in CONTROL},
        }
        posts = [Route(f"/api/replay/{verb}", self._answering(act), methods=["POST"]) for verb, act in verbs.items()]
        return [*posts, Route("/api/replay/follow", self._follow)]

    # Requests

    def _answering(
        self, act: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                if not self._allow:
                    raise Refused(403, "this page may only watch: start `messager view` with --allow-replay")
                return JSONResponse(await act(await _given(request)))
            except Refused as error:
                return _refusal(error.status, str(error))
            except (StoreError, MessagerError, ValueError) as error:
                return _refusal(400, str(error))

        return answer

    async def _follow(self, request: Request) -> Any:
        """Stream what is known of the replay, whenever it has changed."""

        async def events() -> AsyncGenerator[StreamEvent, None]:
            while True:
                changed = self._changed
                yield StreamEvent("replay", self._known)
                await asyncio.sleep(EVENT_S)
                await changed.wait()

        return EventStream(events(), self._stop_streams)

    def _control(self, verb: str) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
        async def act(given: dict[str, Any]) -> dict[str, Any]:
            running = self._process is not None and self._process.running
            path = self._process.socket if self._process is not None and running else self._attached
            if path is None:
                raise Refused(409, "no replay is running: start one")
            answer = await control_client.ask(path, {**given, "verb": verb})
            if not answer.pop("ok", False):
                raise StoreError(str(answer.get("error")))
            return _for_page(answer)

        return act

    async def _plan(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return what a replay would publish, and where. Without `to_exp`, one is proposed if channels name the run."""
        exp_id, to_exp = _text(given, "exp_id"), _text_or_none(given, "to_exp")
        async with EventLog.open(self._store, create=False) as log:
            of = await log.experiment(exp_id)
            names = await log.channels(of)
            if "to_exp" not in given:
                to_exp = await _proposed(log, of, names)
            channel_map = ChannelMap(None, to_exp)
            plan = await make_plan(
                *(log, of, Selection()), channel_map=channel_map, broker_url=self._broker, keep_names=False
            )
            targets = [channels.decode(name) for name in await plan.published_channels()]
            return {
                "exp_id": of.exp_id,
                "to_exp": to_exp,
                "broker": without_credentials(self._broker),
                "messages": await plan.certain_count() or await plan.count(),
                "at_least": plan.rule.reads and not plan.rule.ended,
                "channels": targets[:SHOWN],
                "channels_of": len(targets),
                "original": len(set(names).intersection(targets)),
            }

    async def _start(self, given: dict[str, Any]) -> dict[str, Any]:
        """Start a replay that begins paused. Return when it can be controlled."""
        exp_id, to_exp, live = _text(given, "exp_id"), _text_or_none(given, "to_exp"), _live(given)
        async with self._changing:
            if self._attached is not None:
                raise Refused(409, "this page is attached to a replay that was started elsewhere: it starts none")
            if self._process is not None and self._process.running:
                raise Refused(409, "a replay is running: stop it first")
            process = self._process = await ReplayProcess.start(
                store=self._store, broker=self._broker, exp_id=exp_id, to_exp=to_exp, live=live
            )
            self._known["status"] = None
            self._tell(phase=Phase.STARTING.value, lines=[], code=None, exp_id=exp_id, to_exp=to_exp)
            there = asyncio.Event()
            self._watcher = asyncio.create_task(self._watch_process(process, there))
            await there.wait()
        if not process.running:
            raise StoreError((process.lines or ["the replay ended at once"])[-1])
        return dict(self._known)

    async def _stop(self, given: dict[str, Any]) -> dict[str, Any]:
        """End the replay where it is."""
        if self._attached is not None:
            raise Refused(409, "this replay was started elsewhere: end it there")
        process, watcher = self._process, self._watcher
        if process is None or watcher is None or not process.running:
            raise Refused(409, "no replay is running: start one")
        await process.end()
        await asyncio.shield(watcher)
        return dict(self._known)

    # What is known

    async def _watch_process(self, process: ReplayProcess, there: asyncio.Event) -> None:
        try:
            while process.running and not there.is_set():
                with contextlib.suppress(OSError):
                    async for status in control_client.statuses(process.socket):
                        if status.get("state") not in NOT_BEGUN:
                            there.set()
                        phase = Phase.RUNNING if there.is_set() else Phase.STARTING
                        self._tell(phase=phase.value, status=status)
                await asyncio.sleep(FIRST_TRY_S)
            code = await process.ended()
            self._tell(phase=Phase.ENDED.value, code=code, lines=process.lines)
        finally:
            there.set()

    async def _watch_attached(self, path: str) -> None:
        while True:
            with contextlib.suppress(OSError):
                async for status in control_client.statuses(path):
                    self._tell(phase=Phase.RUNNING.value, status=status, exp_id=status.get("exp_id"))
                self._tell(phase=Phase.ENDED.value)
            await asyncio.sleep(NEXT_TRY_S)

    def _tell(self, *, status: dict[str, Any] | None = None, **changes: Any) -> None:
        if status is not None:
            self._known["status"] = _for_page(status)
        self._known |= changes
        self._changed.set()
        self._changed = asyncio.Event()


def _for_page(status: dict[str, Any]) -> dict[str, Any]:
    """Return a status with the position as text: JavaScript's numbers are exact to 2**53 only."""
    position = status.get("position")
    return {**status, "position": None if position is None else str(position)}


async def _given(request: Request) -> dict[str, Any]:
    """Return the fields of a request: a JSON object, or nothing."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_REQUEST:
            raise Refused(413, f"the request is longer than {LONGEST_REQUEST:,} bytes")
    try:
        given = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Refused(400, "the request is not JSON") from None
    if not isinstance(given, dict):
        raise Refused(400, "the request is not a JSON object")
    return given


def _refusal(status: int, reason: str) -> Response:
    return JSONResponse({"error": mask_text(" ".join(reason.split()))}, status)


def _text(given: dict[str, Any], name: str) -> str:
    found = given.get(name)
    if not isinstance(found, str) or not found:
        raise StoreError(f"the field {name!r} is text: give the exp_id of the experiment")
    return found


def _text_or_none(given: dict[str, Any], name: str) -> str | None:
    return None if given.get(name) is None else _text(given, name)


def _live(given: dict[str, Any]) -> list[str | int] | str | None:
    found = given.get("live")
    if found is None or found == "all":
        return found
    if isinstance(found, list) and found and all(type(one) in (str, int) for one in found):
        return found
    raise StoreError("the field 'live' is \"all\" or a list of ids: give those of agents of the experiment")


async def _proposed(log: EventLog, of: Experiment, names: list[str]) -> str | None:
    """Return a new exp_id for the channels of a replay; None if no channel names the experiment."""
    wanted = re.sub(r"[:/*?\[\]\s@]", "-", of.exp_id)[:200] + "-replay"
    if not any(channels.with_experiment(name, wanted) != name for name in names):
        return None
    number, proposal = 1, wanted
    while await log.has_experiment(proposal):
        number += 1
        proposal = f"{wanted}-{number}"
    return proposal

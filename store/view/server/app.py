"""The routes of the page's server. Errors of requests for data are JSON, `{"error": "one line"}`.

`GET /`, `GET /page/NAME`              the page and its modules
`GET /api/experiments`                 the experiments of the store
`GET /api/run/EXP/head`                what the page knows besides the messages, and the tail position of that moment;
                                       null while EXP does not exist
`GET /api/run/EXP/messages`            a chunk: the first messages, those behind the cursor `after`, or the last ones
                                       before the cursor `before`, which `and` includes, or before the `end`.
                                       `position` is a tail position that limits them
`GET /api/run/EXP/activity`, `pairs`   counts by time, and by sender and recipient
`GET /api/run/EXP/problems`, `verify`  what went wrong; whether the log is as it was recorded
`GET /api/run/EXP/follow`              server-sent events (`following`), behind the tail position `position`

EXP is an exp_id, a name or a prefix. `messages`, `activity` and `pairs` take the filters of `parameters.selection`.
While the experiment is indexed, which starts with the first request, counts and problems answer 202 with
`{"indexing": [done, total]}`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from messager import __version__

from ...errors import ExperimentNotFound, StoreError, StoreNotFound
from ...json_text import dump_strict
from ...log.event import Cursor, iso
from ...log.event_query import recorders_now
from ...log.messages import message_count
from ...log.selection import Selection
from ...log.span import Span
from ...queries.overview import listing
from ..columns import ROWS
from ..head import head
from ..page import MAIN, script
from . import counts, parameters
from .event_stream import EventStream
from .examiner import Examines, Question
from .following import follow
from .paging import PAGE, page
from .positions import renamed
from .served_store import Served, ServedStore
from .statuses import BUG, status_of

FOLDER = Path(__file__).parents[1] / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
"""The files of the page, by suffix."""
EXAMINED: tuple[Question, ...] = ("activity", "pairs", "problems", "verify")
"""Routes that the examiner answers."""

logger = logging.getLogger("messager_store")


def application(
    store: ServedStore,
    examiner: Examines,
    stop: asyncio.Event,
    *,
    replay: Callable[[], dict[str, Any] | None] = lambda: None,
    more: Sequence[BaseRoute] = (),
) -> ASGIApp:
    """Return the application for a store, without the control of access. Streams end when `stop` is set.

    `replay` returns what the head says about replays; `more` are further routes.
    """
    runs = _Runs(store, examiner, stop, replay)
    answers = {"messages": runs.messages} | {question: runs.examined(question) for question in EXAMINED}
    return Starlette(
        routes=[
            Route("/", runs.page),
            Route("/page/{name:path}", _page),
            Route("/api/experiments", runs.experiments),
            Route("/api/run/{exp:path}/head", runs.head),
            Route("/api/run/{exp:path}/follow", runs.follow),
            *(Route(f"/api/run/{{exp:path}}/{name}", runs.of(answer)) for name, answer in answers.items()),
            *more,
        ],
        exception_handlers={StoreError: _refused, HTTPException: _not_there, Exception: _failed},
    )


async def prepare(store: ServedStore, examiner: Examines, wanted: str) -> StoreError | None:
    """Begin what the page of an experiment asks for first; return the error if the experiment does not exist.

    For ten million events it takes a second or two, about as long as a browser takes to load the page. Raises
    `AmbiguousExperiment`.
    """
    try:
        run = await store.run(wanted)
    except (StoreNotFound, ExperimentNotFound) as error:
        return error
    run.begin(lambda: asyncio.gather(run.sources(Selection()), examiner.answer("first", run.of.exp_id)))
    return None


async def _page(request: Request) -> Response:
    """Answer with a file of the page, by its exact name. `main.js` has all modules, as requests take time."""
    path = _files().get(request.path_params.get("name", "index.html"))
    if path is None:
        raise HTTPException(404)
    content = script() if path.name == MAIN else path.read_bytes()
    return Response(content, media_type=TYPES[path.suffix])  # cheaper than `FileResponse`, and all are small


@cache
def _files() -> dict[str, Path]:
    return {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.suffix in TYPES}


class _Runs:
    """The answers about experiments."""

    def __init__(
        self,
        store: ServedStore,
        examiner: Examines,
        stop: asyncio.Event,
        replay: Callable[[], dict[str, Any] | None],
    ) -> None:
        self._store = store
        self._examiner = examiner
        self._stop = stop
        self._replay = replay

    def of(self, answer: Callable[[Request, Served], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that finds the experiment first."""

        async def endpoint(request: Request) -> Response:
            return await answer(request, await self._store.run(request.path_params["exp"]))

        return endpoint

    async def page(self, request: Request) -> Response:
        """Answer with the page, and begin to count what it will ask for."""
        if exp := request.query_params.get("exp"):
            with suppress(StoreError):
                await prepare(self._store, self._examiner, exp)
        return await _page(request)

    async def experiments(self, request: Request) -> Response:
        """List the experiments, the newest first."""
        try:
            log = await self._store.log()
        except StoreNotFound:
            return _json({"experiments": [], "replay": self._replay()})
        found = await listing(log, (await log.experiments())[::-1])
        texts = ("first_ts", "last_ts")
        rows = [{**row, **{key: None if row[key] is None else str(row[key]) for key in texts}} for row in found]
        return _json({"experiments": rows, "replay": self._replay()})

    async def head(self, request: Request) -> Response:
        """Answer with the head; null while the experiment does not exist, which is no error of the page."""
        try:
            run = await self._store.run(request.path_params["exp"])
        except (ExperimentNotFound, StoreNotFound):
            return _json(None)
        now = await recorders_now(run.log.database, run.of)
        position = {now.ordinals[number]: last for number, last in now.last_seqs.items()}
        messages = None
        if sum(position.values()) <= counts.COUNTED:
            rule = await run.rule.sources(run.log, run.of)
            messages = await message_count(run.log, run.of, Selection(), Span(last_seqs=position), rule, redacted=True)
        return _json(
            {
                **await head(run.log, run.of, Selection(), messages=messages),
                "problems": None,
                "verify": None,
                "selection": "",
                "shared": "",
                "made": {"version": __version__, "at": iso(time.time_ns())},
                "position": parameters.position_text(position),
                "indexing": (await self._examiner.answer("indexing", run.of.exp_id, [("again", "")]))["indexing"],
                "replay": self._replay(),
            }
        )

    async def messages(self, request: Request, run: Served) -> Response:
        given = request.query_params
        after, before, also = (given.get(name) for name in ("after", "before", "and"))
        end = Cursor.parse(before) if before and before != "end" else None
        if end is not None and before == also:
            end = end._replace(seq=end.seq + 1)
        chunk = await page(
            run,
            await parameters.selection(given, run.log, run.of),
            after=Cursor.parse(after) if after else None,
            before=end,
            backward=bool(before),
            limit=parameters.number(given, "limit", PAGE, ROWS),
            last_seqs=parameters.position(given["position"]) if "position" in given else None,
            filters=parameters.filters(given),
        )
        return Response(chunk, media_type="application/octet-stream")

    def examined(self, question: Question) -> Callable[[Request, Served], Awaitable[Response]]:
        """Return the answer that the examiner has to a question."""

        async def answer(request: Request, run: Served) -> Response:
            found = await self._examiner.answer(question, run.of.exp_id, request.query_params.multi_items())
            return _json(renamed(found, run.names), 202 if "indexing" in found else 200)

        return answer

    async def follow(self, request: Request) -> Any:
        given = request.headers.get("last-event-id") or request.query_params.get("position")
        events = follow(self._store, request.path_params["exp"], parameters.position(given))
        return EventStream(events, self._stop)


def _json(data: Any, status: int = 200) -> Response:
    return Response(dump_strict(data), status, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with an error of the store."""
    return _json({"error": " ".join(str(error).split())}, status_of(error))


async def _not_there(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _json({"error": f"{request.url.path}: there is no such page"}, status)


async def _failed(request: Request, error: Exception) -> Response:
    logger.error("%s failed", request.url.path, exc_info=error)
    return _json({"error": BUG}, status_of(error))

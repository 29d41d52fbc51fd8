"""The routes of the page's server. Errors of requests for data are JSON, `{"error": "one line"}`.

`GET /`, `GET /page/NAME`              the page and its modules
`GET /api/experiments`                 the experiments of the store
`GET /api/run/EXP/head`                what the page knows besides the messages, and the tail position of that moment;
                                       null while EXP does not exist
`GET /api/run/EXP/messages`            a chunk: the first messages, those behind the cursor `after`, or the last ones
                                       before the cursor `before`, which `and` includes, or before the `end`.
                                       `position` is a tail position that limits them. The header `last` is the
                                       cursor of the last one
`GET /api/run/EXP/activity`, `pairs`   counts by time, and by sender and recipient
`GET /api/run/EXP/problems`, `verify`  what went wrong; whether the log is as it was recorded
`GET /api/run/EXP/follow`              server-sent events (`following`), behind the tail position `position`

EXP is an exp_id, a name or a prefix. `messages`, `activity` and `pairs` take the filters of `parameters.selection`.
While the projection is brought up to date, which starts with the first request, counts and problems answer 202 with
`{"building": [done, total]}`; `messages` waits.
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
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from messager import __version__

from ...errors import ExperimentNotFound, StoreError, StoreNotFound
from ...experiments.records import Experiment
from ...json_text import dump_strict
from ...log.event import Cursor, iso
from ...log.event_log import EventLog
from ...log.event_query import recorders_now
from ...log.selection import Selection
from ...maintenance.verify import verify
from ...projection.query import Projection
from ...projection.selecting import Rows, condition_of
from ...queries.overview import listing
from ...queries.problems import problems
from ..columns import CHUNK_BYTES, chunk
from ..head import head, problems_of, verdict_of
from ..page import MAIN, script
from ..shown import Reader, Shown
from . import counts, parameters
from .event_stream import EventStream
from .following import follow
from .questions import Questions
from .served_store import Served, ServedStore
from .statuses import BUG, status_of

FOLDER = Path(__file__).parents[1] / "page"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
"""The files of the page, by suffix."""
PAGE = 2_000
"""Messages in an answer, unless another number is asked for."""
MOST_MESSAGES = 65_536
"""Messages in an answer, at most."""
MOST_BUCKETS = 4_000

logger = logging.getLogger("messager_store")


def application(
    store: ServedStore,
    questions: Questions,
    stop: asyncio.Event,
    *,
    replay: Callable[[], dict[str, Any] | None] = lambda: None,
    more: Sequence[BaseRoute] = (),
) -> ASGIApp:
    """Return the application for a store, without the control of access. Streams end when `stop` is set.

    `replay` returns what the head says about replays; `more` are further routes.
    """
    runs = _Runs(store, questions, stop, replay)
    answers = {
        "messages": runs.messages,
        "activity": runs.counted(runs.activity),
        "pairs": runs.counted(runs.pairs),
        "problems": runs.counted(runs.problems),
        "verify": runs.verify,
    }
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


async def prepare(store: ServedStore, questions: Questions, wanted: str) -> StoreError | None:
    """Begin to bring the projection of an experiment up to date; return the error if the experiment does not exist.

    Raises `AmbiguousExperiment`.
    """
    try:
        run = await store.run(wanted)
    except (StoreNotFound, ExperimentNotFound) as error:
        return error
    await questions.progress(run.of.exp_id, wait_s=0)
    return None


async def _number(log: EventLog, of: Experiment, here: Projection) -> int:
    """Return the number of messages on the page of an experiment."""
    condition = await condition_of(log.database, of, Selection(), Rows.SHOWN)
    statement = f"SELECT count(*) FROM event e WHERE {condition.where}"
    [(number,)] = await asyncio.to_thread(here.rows, statement)
    return int(number)


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
        questions: Questions,
        stop: asyncio.Event,
        replay: Callable[[], dict[str, Any] | None],
    ) -> None:
        self._store = store
        self._questions = questions
        self._stop = stop
        self._replay = replay

    def of(self, answer: Callable[[Request, Served], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that finds the experiment first."""

        async def endpoint(request: Request) -> Response:
            return await answer(request, await self._store.run(request.path_params["exp"]))

        return endpoint

    async def page(self, request: Request) -> Response:
        """Answer with the page, and begin to bring the projection up to date."""
        if exp := request.query_params.get("exp"):
            with suppress(StoreError):
                await prepare(self._store, self._questions, exp)
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
        building, messages = await self._questions.progress(run.of.exp_id), None
        if building is None:
            messages = await self._questions.ask(run.of.exp_id, _number)
        return _json(
            {
                **await head(run.log, run.of, Selection(), messages=messages),
                "problems": None,
                "verify": None,
                "selection": "",
                "shared": "",
                "made": {"version": __version__, "at": iso(time.time_ns())},
                "position": parameters.position_text(position),
                "building": building,
                "replay": self._replay(),
            }
        )

    async def messages(self, request: Request, run: Served) -> Response:
        given = request.query_params
        after, before, also = (given.get(name) for name in ("after", "before", "and"))
        end = Cursor.parse(before) if before and before != "end" else None
        if end is not None and before == also:
            end = end._replace(seq=end.seq + 1)
        position, told = parameters.followed(given.get("position"))
        if told is not None:  # what is behind it will be told
            last = told._replace(seq=told.seq + 1)
            end = last if end is None else min(end, last)
        selection = await parameters.selection(given, run.log, run.of)

        limit = parameters.number(given, "limit", PAGE, MOST_MESSAGES)

        async def asked(log: EventLog, of: Experiment, here: Projection) -> Shown:
            return await Reader(log, of, here, selection).page(
                limit,
                CHUNK_BYTES,
                after=Cursor.parse(after) if after else None,
                before=end,
                backward=bool(before),
                last_seqs=position if "position" in given else None,
            )

        shown = await self._questions.ask(run.of.exp_id, asked)
        made = chunk(shown, run.names)
        headers = {} if shown.last is None else {"last": str(shown.last)}
        return Response(await asyncio.to_thread(made.packed), headers=headers, media_type="application/octet-stream")

    def counted(
        self, answer: Callable[[QueryParams, Served], Awaitable[dict[str, Any]]]
    ) -> Callable[[Request, Served], Awaitable[Response]]:
        """Return the endpoint for an answer from the projection, which may not be up to date yet."""

        async def endpoint(request: Request, run: Served) -> Response:
            if (building := await self._questions.progress(run.of.exp_id)) is not None:
                return _json({"building": building}, 202)
            return _json(await answer(request.query_params, run))

        return endpoint

    async def activity(self, given: QueryParams, run: Served) -> dict[str, Any]:
        selection = await parameters.selection(given, run.log, run.of)
        span = await selection.span(run.log.database, run.of)
        if span.start is None or span.end is None:
            raise StoreError("counts over time need a time: give since and until")
        by = parameters.one_of(given, "by", "channel", "from", "all")
        wanted = parameters.number(given, "buckets", counts.BUCKETS, MOST_BUCKETS)
        buckets = await counts.buckets_of(run, span.start.ts, span.end.ts, wanted)
        return await counts.activity(self._questions, run, selection, buckets, by)

    async def pairs(self, given: QueryParams, run: Served) -> dict[str, Any]:
        selection = await parameters.selection(given, run.log, run.of)
        across = parameters.one_of(given, "across", "to", "channel")
        return await counts.pairs(self._questions, run, selection, across)

    async def problems(self, given: QueryParams, run: Served) -> dict[str, Any]:
        return problems_of(await self._questions.with_log(run.of.exp_id, problems))

    async def verify(self, request: Request, run: Served) -> Response:
        return _json(verdict_of(await self._questions.with_log(run.of.exp_id, verify)))

    async def follow(self, request: Request) -> Any:
        given = request.headers.get("last-event-id") or request.query_params.get("position")
        events = follow(self._store, request.path_params["exp"], *parameters.followed(given))
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

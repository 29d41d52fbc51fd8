"""The route of two runs: how their messages are aligned. The messages are those of `/api/run/EXP/messages`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...json_text import dump_strict
from ...log.selection import Selection
from ...matching.match import Match
from ..comparing import comparison
from .served_store import ServedStore


def compare_route(store: ServedStore) -> Route:
    """Return the route `GET /api/compare?a=EXP&b=EXP`, which answers with `comparing.comparison`.

    With `ignore=PATH`, which may be repeated, payloads are compared as JSON without these paths.
    """

    async def answer(request: Request) -> Response:
        a, b = [await store.run(request.query_params.get(name, "")) for name in ("a", "b")]
        paths = request.query_params.getlist("ignore")
        found = await comparison(a.log, a.of, b.of, Selection(), match=Match(ignore=paths) if paths else None)
        return Response(dump_strict(found), media_type="application/json")

    return Route("/api/compare", answer)

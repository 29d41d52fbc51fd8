"""Answers that read a whole experiment: its index, counts, problems, verification.

They take seconds for a million events. `messager view` has them made by a process of its own (`examiner_process`), so
that pages and followed recordings do not wait for them. Positions of names in the answers are the examiner's own;
`positions.renamed` makes them those of another list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from starlette.datastructures import QueryParams

from ...errors import StoreError
from ...experiments.records import Experiment
from ...log.event_log import EventLog
from ...log.selection import Selection
from ...maintenance.verify import verify
from ...queries import side_tables
from ...queries.index import index_or_warn
from ...queries.problems import problems
from ..head import problems_of, verdict_of
from . import counts, parameters
from .message_rule import Indexed
from .positions import with_values
from .served_store import ReadIndexed, Served, ServedStore

Question = Literal["indexing", "indexed", "first", "activity", "pairs", "problems", "verify"]
Query = Sequence[tuple[str, str]]
"""Parameters of a request, in order."""

MOST_BUCKETS = 4_000
PATIENCE_S = 0.5
"""Seconds that a question waits for the indexing, before it is answered with its progress."""


class Examines(Protocol):
    """An `Examiner`, or one in another process."""

    async def answer(self, question: Question, exp_id: str, query: Query = ()) -> dict[str, Any]:
        """Return the answer, or `{"indexing": [done, total]}` while the experiment is indexed. Raises `StoreError`.

        `indexing` answers with the progress alone, None if the experiment is indexed. With the parameter `again`, as
        for a page that begins, what is new is indexed now: its receptions would not be shown.

        `indexed` answers with the data of `Indexed`, of which every number is right with the parameter `counted`.
        `first` answers with nothing: what the page of a large experiment needs first is read, and kept.
        """
        ...


def indexed_by(examiner: Examines) -> ReadIndexed:
    """Return what reads `Indexed` through an examiner."""

    async def read(log: EventLog, of: Experiment, counted: bool) -> Indexed:
        query = [("counted", "")] if counted else []
        return Indexed.from_data(await examiner.answer("indexed", of.exp_id, query))

    return read


class Examiner:
    """Answers from the store of a URL, which has to exist by the first question. Use it as a context manager."""

    def __init__(self, url: str) -> None:
        self._store = ServedStore(url)
        self._examined: dict[Served, _Examined] = {}

    async def __aenter__(self) -> Examiner:
        return self

    async def __aexit__(self, *ignored: object) -> None:
        for examined in self._examined.values():
            await examined.close()
        await self._store.close()

    async def answer(self, question: Question, exp_id: str, query: Query = ()) -> dict[str, Any]:
        """Answer, as `Examines.answer`."""
        run = await self._store.run(exp_id)
        examined = self._examined.setdefault(run, _Examined(run))
        found = await examined.answer(question, QueryParams(list(query)))
        return with_values(found, run.names) if "names" in found else found


class _Examined:
    """One experiment, and its indexing."""

    def __init__(self, run: Served) -> None:
        self._run = run
        self._indexing: asyncio.Task[bool] | None = None
        self._indexed = 0, 0

    async def close(self) -> None:
        """End the indexing; what was indexed remains."""
        if self._indexing is not None:
            self._indexing.cancel()
            await asyncio.wait((self._indexing,))

    async def answer(self, question: Question, given: QueryParams) -> dict[str, Any]:
        run = self._run
        if question == "indexed":
            return (await run.indexed("counted" in given)).data()
        if question == "verify":
            return verdict_of(await verify(run.log, run.of))
        indexing = await self._progress(again="again" in given)
        if indexing is not None or question == "indexing":
            return {"indexing": indexing}
        if question == "problems":
            return problems_of(await problems(run.log, run.of))
        if question == "first":
            await asyncio.gather(run.sources(Selection()), counts.count_first(run))
            return {}
        selection = await parameters.selection(given, run.log, run.of)
        if question == "pairs":
            across = parameters.one_of(given, "across", "to", "channel")
            found: dict[str, Any] = await run.kept(f"pairs {given}", lambda: counts.pairs(run, selection, across))
            return found
        span = await selection.span(run.log.database, run.of)
        if span.start is None or span.end is None:
            raise StoreError("counts over time need a time: give since and until")
        by = parameters.one_of(given, "by", "channel", "from", "all")
        wanted = parameters.number(given, "buckets", counts.BUCKETS, MOST_BUCKETS)
        buckets = await counts.buckets_of(run, span.start.ts, span.end.ts, wanted)
        return await counts.kept_activity(run, selection, parameters.filters(given), buckets, by)

    async def _progress(self, *, again: bool) -> list[int] | None:
        """Return the number of events that are indexed and their total; None if the experiment is indexed.

        Starts the indexing if nobody has. An experiment that is being recorded counts as indexed after the first time:
        a count adds what is new.
        """
        run = self._run
        idle = self._indexing is None or (again and self._indexing.done())
        if idle and await side_tables.is_behind(run.log.database, run.of.id):
            self._indexing = asyncio.create_task(self._index())
        if self._indexing is None or self._indexing.done():
            return None
        await asyncio.wait((self._indexing,), timeout=PATIENCE_S)
        return None if self._indexing.done() else list(self._indexed)

    async def _index(self) -> bool:
        async with self._run.counting:
            return await index_or_warn(self._run.log, self._run.of, progress=self._note)

    def _note(self, done: int, total: int) -> None:
        self._indexed = done, total

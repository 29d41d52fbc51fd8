"""Verification: check all guarantees of the log again from its rows.

| checks                | of                                                                             |
|-----------------------|--------------------------------------------------------------------------------|
| `table_problems`      | the tables and indexes of the log, which are those of `schema.py`              |
| `EXPERIMENT_CHECKS`   | the row of the experiment: head, recorders, schema version, time of closing    |
| `check_seals`         | the rows of its recorders, which have their seals                              |
| `check_names`         | its interned names                                                             |
| `check_recorder`      | each recorder, its batches and events (`recorder_checks`)                      |
| `check_replay_index`  | its events as readers find them (`replay_index`)                               |
| `check_name_index`    | the names of its events as readers find them                                   |
| `RedactionCheck`      | its redaction records                                                          |
| `STORE_CHECKS`        | the store around the experiments: unknown states, rows without an owner        |

Each check yields problems; the result is a `Verdict`. Projections are not part of the log, and are not checked.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from shlex import quote

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from ..db.codes import AGENT, MESSAGER
from ..db.database import Database
from ..db.log_tables import table_problems
from ..db.schema import (
    VISIBLE,
    batch,
    event,
    experiment,
    name,
    recorder,
    redaction,
    tag,
)
from ..errors import ExperimentNotFound
from ..experiments.records import Experiment, RecorderRow
from ..experiments.registry import by_exp_id, recorders_of
from ..experiments.seal import seal_of
from ..json_text import is_deep, is_no_text
from ..log import chain
from ..log.chain_walk import WRONG_TYPE, Source
from ..log.event_log import EventLog
from ..log.event_query import EventQuery, parameter
from ..log.names import name_hash
from ..log.redaction_records import RedactionCheck
from ..privacy.meta_credentials import find_in_meta
from .recorder_checks import check_recorder
from .replay_index import check_replay_index
from .verdict import Verdict

PAGE = 2000
STORE = "(store)"
"""Stands for the exp_id in the verdict about the store around the experiments."""
SHOWN_PLACES = 5
"""Maximum number of locations of credentials in a note."""

UNSCRUBBED = (
    "a redaction was interrupted before the file was rewritten; the file may still hold redacted data: "
    "`messager redact --scrub`"
)

Progress = Callable[[int, int], None]
"""Called with the number of checked events of an experiment and their total."""


async def verify_all(log: EventLog, progress: Progress | None = None) -> AsyncIterator[Verdict]:
    """Check every experiment, then the store around them."""
    tables = await _table_problems(log.database)
    for of in await log.experiments():
        yield await _verify(log, of, tables, progress=progress)
    store = Verdict(STORE, "")
    async with log.database.reading() as connection:
        for check in STORE_CHECKS:
            store.add([problem async for problem in check(connection)])
        store.notes += [note async for note in _unfinished(connection)]
    if await log.database.rewrite_wanted():
        store.notes.append(UNSCRUBBED)
    if store.problems or store.notes:
        yield store


async def verify(
    log: EventLog, of: Experiment, head: str | None = None, *, progress: Progress | None = None
) -> Verdict:
    """Check one experiment; with `head`, or its first digits, also that this is the head of the experiment.

    Events that live recorders commit during the check are not checked.
    """
    return await _verify(log, of, await _table_problems(log.database), head, progress=progress)


async def _table_problems(database: Database) -> list[str]:
    async with database.reading() as connection:
        return await connection.run_sync(table_problems)


async def _verify(
    log: EventLog, of: Experiment, tables: list[str], head: str | None = None, *, progress: Progress | None
) -> Verdict:
    """Check one experiment as `verify` does; `tables` are the problems of the tables of the log."""
    database = log.database
    of, recorders = await _current(database, of)
    subject = _Subject(of, recorders, await RedactionCheck.load(database, of), head)
    verdict = Verdict(of.exp_id, subject.head or "", recorders=len(recorders))
    verdict.add(tables)
    for check in EXPERIMENT_CHECKS:
        verdict.add(check(subject))
    verdict.add([problem async for problem in check_seals(database, of)])
    verdict.add([problem async for problem in check_names(database, of)])
    total = sum(row.last_seq for row in recorders if isinstance(row.last_seq, int))

    def tell(checked: int) -> None:
        if progress is not None:
            progress(verdict.events + checked, total)

    source, times = Source(database, of.id), {row.id: array("q") for row in recorders}
    for row in recorders:
        try:
            await check_recorder(source, of, row, subject.redactions, verdict, times[row.id], tell)
        except WRONG_TYPE:
            verdict.add([f"recorder {row.ordinal}: its row, or a batch's, holds a value of the wrong type"])
    if not tables:  # otherwise there may be no such index
        verdict.add([problem async for problem in check_replay_index(database, of, times)])
        verdict.add([problem async for problem in check_name_index(database, of, source.kinds)])
    verdict.add(subject.redactions.finish())
    verdict.notes += subject.redactions.notes()
    verdict.notes += _credentials(subject)
    if subject.redactions.rows and await database.rewrite_wanted():
        verdict.notes.append(UNSCRUBBED)
    return verdict


@dataclass(slots=True)
class _Subject:
    """An experiment to check."""

    of: Experiment
    recorders: list[RecorderRow]
    redactions: RedactionCheck
    wanted_head: str | None

    @property
    def head(self) -> str | None:
        """Return the head of the experiment; None if a recorder's row holds a value of the wrong type."""
        try:
            return chain.head_of(self.recorders)
        except WRONG_TYPE:
            return None


async def _current(database: Database, of: Experiment) -> tuple[Experiment, list[RecorderRow]]:
    """Return the experiment and its recorders, read again if a recorder joined or it was closed in between."""
    for tries_left in range(4, -1, -1):
        recorders = await recorders_of(database, of.id)
        now = await by_exp_id(database, of.exp_id)
        if now is None:
            raise ExperimentNotFound(of.exp_id)
        joined = isinstance(now.recorders, int) and now.recorders > len(recorders)
        if (not joined and now.status == of.status) or not tries_left:
            return now, recorders
        of = now
    raise AssertionError("unreachable")


def check_head(subject: _Subject) -> Iterator[str]:
    """Check that there is a head, and that it is the wanted one."""
    head, wanted = subject.head, subject.wanted_head
    if head is None:
        yield "a recorder's uuid or head is a value of the wrong type, so there is no head"
    if wanted is not None and not (wanted and (head or "").startswith(wanted)):
        former = subject.redactions.former_head(wanted) if wanted else None
        yield f"the head is {head}, not {wanted}" + (f": {former}" if former else "")


def check_recorder_numbers(subject: _Subject) -> Iterator[str]:
    """Check that no recorder is missing."""
    numbers, count = [row.ordinal for row in subject.recorders], len(subject.recorders)
    if subject.of.recorders != count:
        yield f"the experiment counts {subject.of.recorders} recorders, there are {count}"
    if numbers != list(range(1, count + 1)):
        yield f"the recorders are numbered {numbers}, not 1 to {count}"
    elif [row.id for row in subject.recorders] != sorted(row.id for row in subject.recorders):
        yield "the recorders are not numbered in the order of their ids"


def check_closing(subject: _Subject) -> Iterator[str]:
    """Check that exactly a closed experiment has a time of closing, and that its recorders have ended."""
    if (subject.of.status == "closed") != (subject.of.closed_at is not None):
        yield f"the experiment is {subject.of.status}, but its time of closing contradicts that"
    for row in subject.recorders if subject.of.status == "closed" else ():
        if row.state in ("alive", "incomplete"):
            yield f"the experiment is closed, but recorder {row.ordinal} is {row.state}"


EXPERIMENT_CHECKS: tuple[Callable[[_Subject], Iterator[str]], ...] = (
    check_head,
    check_recorder_numbers,
    check_closing,
)


async def check_seals(database: Database, of: Experiment) -> AsyncIterator[str]:
    """Check that the row of each ended recorder is the one that was sealed, and that no other has a seal."""
    query = select(recorder).where(recorder.c.experiment_id == of.id).order_by(recorder.c.ordinal)
    async with database.reading() as connection:
        rows = (await connection.execute(query)).mappings().all()
    for row in rows:
        if row["seal"] != (expected := seal_of(row)):
            what = "it has a seal, but no end" if expected is None else "it does not have the seal of its end"
            yield f"recorder {row['ordinal']}: its row was changed: {what}"


async def check_names(database: Database, of: Experiment) -> AsyncIterator[str]:
    """Check that each name is of a known kind and has the hash and the text of its value."""
    last = -1
    while True:
        rows = await _NAMES.rows(database, experiment=of.id, last=last)
        for number, what, value, digest, text in rows:
            if not isinstance(value, bytes):
                yield f"name {number} ({value!r}) was changed"
                continue
            expected = None if is_no_text(value) else value.decode()
            if what == AGENT and not _is_id(value):
                yield f"name {number} ({value[:100]!r}) is not a readable agent id"
            if digest != name_hash(value) or text != expected or what not in range(MESSAGER + 1):
                yield f"name {number} ({expected!r}) was changed"
        if len(rows) < PAGE:
            return
        last = rows[-1][0]


_NAMES = EventQuery(
    select(name.c.id, name.c.what, name.c.value, name.c.hash, name.c.text)
    .where(name.c.experiment_id == parameter("experiment"), name.c.id > parameter("last"))
    .order_by(name.c.id)
    .limit(PAGE)
)


async def check_name_index(database: Database, of: Experiment, used: dict[int, int]) -> AsyncIterator[str]:
    """Check that the names of events are found by kind, as filters find them; `used` are their kinds by id."""
    found: dict[int, int] = {}
    for what in range(MESSAGER + 1):
        query = select(name.c.id).where(name.c.experiment_id == of.id, name.c.what == what)
        async with database.reading() as connection:
            await database.dialect.prefer_indexes(connection)
            found |= dict.fromkeys((await connection.execute(query)).scalars(), what)
    missing = [number for number, what in used.items() if found.get(number) != what]
    if missing:
        yield f"filters do not find {len(missing)} names of its events, the first is name {min(missing)}"


def _is_id(value: bytes) -> bool:
    """Return whether the bytes can be decoded to an agent id."""
    try:
        return not is_deep(json.loads(value.decode()))
    except (ValueError, RecursionError):
        return False


def _credentials(subject: _Subject) -> Iterator[str]:
    found = find_in_meta(subject.of, subject.recorders)
    if found:
        more = f" and {len(found) - SHOWN_PLACES} more" if len(found) > SHOWN_PLACES else ""
        yield (
            f"its meta contains possible credentials ({'; '.join(found[:SHOWN_PLACES])}{more}): "
            f"`messager redact {quote(subject.of.exp_id)} --meta` masks them"
        )


async def check_statuses(connection: AsyncConnection) -> AsyncIterator[str]:
    """Check that every experiment has a known status."""
    known = (*VISIBLE, "importing", "removing")
    query = select(experiment.c.exp_id, experiment.c.status).where(experiment.c.status.not_in(known))
    for exp_id, status in await connection.execute(query):
        yield f"experiment {exp_id} has the unknown status {status!r}"


async def check_owners(connection: AsyncConnection) -> AsyncIterator[str]:
    """Check that every row belongs to an experiment or a recorder."""
    for column, owner in (
        (recorder.c.experiment_id, experiment.c.id),
        (name.c.experiment_id, experiment.c.id),
        (tag.c.experiment_id, experiment.c.id),
        (event.c.experiment_id, experiment.c.id),
        (batch.c.recorder_id, recorder.c.id),
        (redaction.c.experiment_id, experiment.c.id),
    ):
        query = select(func.count()).select_from(column.table).where(column.not_in(select(owner)))
        if rows := (await connection.execute(query)).scalar_one():
            yield f"{rows} rows of table {column.table.name} belong to no {owner.table.name}"


STORE_CHECKS: tuple[Callable[[AsyncConnection], AsyncIterator[str]], ...] = (check_statuses, check_owners)


async def _unfinished(connection: AsyncConnection) -> AsyncIterator[str]:
    for status, what in (("importing", "import"), ("removing", "removal")):
        query = select(func.count()).select_from(experiment).where(experiment.c.status == status)
        if number := (await connection.execute(query)).scalar_one():
            count = f"{number} {what}{'' if number == 1 else 's'}"
            yield f"{count} did not finish (yet); `messager compact` removes what was killed"

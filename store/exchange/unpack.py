"""Unpacking: a pack made the same experiment again, every link of its chain checked on the way in.

A pack may come from anybody. Nothing in it is believed before it is checked, nothing is kept in
memory because it says so, and nothing of it is seen in the store before its end was read.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from sqlalchemy import bindparam, delete, insert, select, update

from .. import chain, experiments
from ..database import Database
from ..errors import BadFile, ExperimentExists, RecorderExists, StoreError
from ..experiments import Experiment
from ..host import this_process
from ..jsontext import MOST_PARTS, is_crowded, is_no_text
from ..log import EventLog, new_uuid
from ..names import agent_value, intern
from ..queries import deliveries
from ..removal import remove, sweep_imports
from ..retention import EVENT_BYTES
from ..schema import (
    AGENT,
    CHANNEL,
    KINDS,
    NO_TEXT,
    SCHEMA_VERSION,
    SEQ_BITS,
    VISIBLE,
    batch,
    event,
    experiment,
    recorder,
    redaction,
    tag,
)
from ..seals import RedactionRow, SealCheck
from .sealed import (
    BATCH,
    COUNTED,
    EXPERIMENT,
    FORMAT,
    MOST_LINE_BYTES,
    MOST_RECORDERS,
    MOST_REDACTIONS,
    RECORDER,
    REDACTION,
    Chain,
    Unfit,
    check_depth,
    integer,
    json_text,
    row_from_json,
    text,
)

FLUSH_EVENTS = 5000
FLUSH_BYTES = 8 * 1024 * 1024
_MOST_NAMES = 50_000
_MOST_NAME_BYTES = 16 * 1024 * 1024
_MOST_REDACTION_BYTES = 64 * 1024 * 1024
_UUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")
_KIND = {kind: code for code, kind in enumerate(KINDS, 1)}
_INT64 = 2**63
_EVENT_FIELDS = {
    "ts",
    "kind",
    "channel",
    "channel_base64",
    "from_id",
    "from_id_base64",
    "to_id",
    "to_id_base64",
    "flags",
    "msg_id",
    "duration_ns",
    "receivers",
    "cause",
    "meta",
    "payload",
    "payload_base64",
}
_INSERT = f"INSERT INTO event ({', '.join(event.c.keys())}) VALUES ({', '.join('?' * len(event.c))})"


async def unpack(
    log: EventLog,
    path: str | os.PathLike[str],
    *,
    exp_id: str | None = None,
    head: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Experiment:
    """Read a pack (`-` for standard input) into the experiment it was made of: same recorders, same head.

    `exp_id` is what to call it here, instead of what the pack says; `head`, or the beginning of one, is
    what its head must be. Everything is checked; where anything differs, nothing of it stays. Raises
    `BadFile` with the number of the line, `ExperimentExists`, and `RecorderExists` where this
    store has these recordings already.
    """
    await sweep_imports(log.database)
    lines = _Lines(path)
    with lines.opened():
        try:
            return await _unpack(log.database, lines, exp_id, head, progress)
        except Unfit as error:
            raise lines.bad(str(error)) from None


async def _unpack(
    database: Database,
    lines: _Lines,
    exp_id: str | None,
    head: str | None,
    progress: Callable[[int, int], None] | None,
) -> Experiment:
    of, tags, redactions, told = _description(lines)
    wanted = of["exp_id"] if exp_id is None else experiments.checked_exp_id(exp_id)
    if await experiments.by_exp_id(database, wanted) is not None:
        raise ExperimentExists(wanted, "Unpack it under another --exp.")
    loading = await _Loading.begin(database, of, wanted, tags)
    try:
        await loading.recorders(lines, of["recorders"])
        claimed = chain.head((row["uuid"], row["head_hash"]) for row in loading.claims)
        if claimed != told:
            raise Unfit(f"its recorders have the head {claimed}, it says {told}")
        if head is not None and not (head and claimed.startswith(head)):
            raise Unfit(f"its head is {claimed}, not {head}")
        await loading.redactions(lines, redactions)
        loading.check_room()
        await loading.events(lines, of["schema_version"], progress)
        lines.check_end()
        await loading.publish(of, wanted)
    except BaseException:
        await remove(database, loading.of)
        raise
    made = await experiments.by_exp_id(database, wanted)
    assert made is not None
    return made


def _description(lines: _Lines) -> tuple[dict[str, Any], list[str], int, str]:
    """The experiment's row, its tags, how many redactions it has, and its head."""
    try:
        first = lines.next()
    except Unfit as error:
        raise Unfit(f"no pack ({error})") from None
    if first.get("format") != FORMAT:
        if first.get("format") == "messager/1" or "ts" in first:
            raise Unfit("this is no pack but an export; read it with `messager import`")
        raise Unfit(f"no pack: it does not begin with the format {FORMAT!r}")
    data = lines.next("experiment", "tags", "redactions", "head")
    version = data["experiment"].get("schema_version") if isinstance(data["experiment"], dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise Unfit("it was packed by a newer messager: upgrade with `pip install -U messager`")
    of = row_from_json(EXPERIMENT, data["experiment"])
    integer(of["schema_version"], "schema_version", 1, SCHEMA_VERSION)
    integer(of["recorders"], "recorders", 0, MOST_RECORDERS)
    if of["status"] not in VISIBLE or (of["status"] == "closed") != (of["closed_at"] is not None):
        raise Unfit(f"the status {of['status']!r} and the time of closing do not fit")
    check_depth(json_text(of["meta"], "meta", dict), "meta")
    tags = data["tags"]
    if not isinstance(tags, list) or len(tags) > MOST_RECORDERS:
        raise Unfit("tags is not a list of strings")
    try:
        experiments.checked_exp_id(of["exp_id"])
        experiments.checked_name(of["name"])
        tags = experiments.checked_tags(text(word, "a tag") for word in tags)
    except StoreError as error:
        raise Unfit(str(error)) from None
    return of, tags, integer(data["redactions"], "redactions", 0, MOST_REDACTIONS), text(data["head"], "head")


class _Loading:
    """The rows of an experiment on their way into the store, hidden until `publish`."""

    def __init__(self, database: Database, of: Experiment, worker: int) -> None:
        self.of = of
        self.claims: list[dict[str, Any]] = []
        """What each recorder's row claims of its events, with its uuid and its id here, by ordinal."""
        self._database = database
        self._worker = worker
        self._names: dict[tuple[int, bytes], int] = {}
        self._name_bytes = 0
        self._rows: list[list[Any]] = []
        self._row_bytes = 0
        self._batches: list[dict[str, Any]] = []
        self._reached: dict[int, int] = {}  # last_seq by id
        self._complete: list[dict[str, Any]] = []
        self._seals = SealCheck()

    @classmethod
    async def begin(cls, database: Database, of: dict[str, Any], exp_id: str, tags: list[str]) -> _Loading:
        """The experiment's row, and a recorder of number 0 which says that we work on it."""
        here, now = this_process(), time.time_ns()
        hidden = {**of, "exp_id": f"importing {exp_id} {uuid4().hex}", "status": "importing", "recorders": 0}
        uuid = new_uuid()
        sign: dict[str, Any] = dict.fromkeys((f"{kind}_count" for kind in KINDS), 0) | {
            "uuid": uuid,
            "ordinal": 0,
            "epoch": 1,
            "role": "import",
            "patterns": "[]",
            "meta": "{}",
            "host": here.host,
            "pid": here.pid,
            "boot_id": here.boot_id,
            "started_at": now,
            "heartbeat_at": now,
            "last_seq": 0,
            "head_hash": chain.first_link(uuid),
            "payload_bytes": 0,
            "worst_unacknowledged": 0,
        }
        async with database.writing() as connection:
            made = await connection.execute(insert(experiment).values(hidden))
            number = made.inserted_primary_key[0]  # type: ignore[index]
            signed = await connection.execute(insert(recorder).values(**sign, experiment_id=number))
            if tags:
                await connection.execute(insert(tag), [{"experiment_id": number, "tag": word} for word in tags])
        named = Experiment(number, hidden["exp_id"], None, "importing", now, None, {}, [], 0, of["schema_version"])
        return cls(database, named, signed.inserted_primary_key[0])  # type: ignore[index]

    async def recorders(self, lines: _Lines, count: int) -> None:
        """The recorders' rows, without what they claim of events that are not there yet."""
        page: list[dict[str, Any]] = []
        for ordinal in range(1, count + 1):
            page.append(_recorder(lines.next("recorder")["recorder"], ordinal))
            if len(page) == 200 or ordinal == count:
                await self._add_recorders(page, lines)
                page = []

    async def _add_recorders(self, page: list[dict[str, Any]], lines: _Lines) -> None:
        uuids = [row["uuid"] for row in page]
        there = select(recorder.c.uuid, experiment.c.exp_id, experiment.c.id, experiment.c.status).join(experiment)
        async with self._database.writing() as connection:
            found = (await connection.execute(there.where(recorder.c.uuid.in_(uuids)).limit(1))).one_or_none()
            if len(set(uuids)) < len(uuids) or (found is not None and found.id == self.of.id):
                raise Unfit("two recorders have the same uuid")
            if found is not None:
                raise RecorderExists(
                    lines.path, found.uuid, found.exp_id if found.status in ("open", "closed") else None
                )
            for row in page:
                claims = {key: row[key] for key in COUNTED}
                nothing = dict.fromkeys(COUNTED, 0) | {
                    "head_hash": chain.first_link(row["uuid"]),
                    "first_ts": None,
                    "last_ts": None,
                }
                made = await connection.execute(
                    insert(recorder).values({**row, **nothing, "experiment_id": self.of.id})
                )
                number = made.inserted_primary_key[0]  # type: ignore[index]
                self.claims.append({**claims, "uuid": row["uuid"], "id": number, "role": row["role"]})

    async def redactions(self, lines: _Lines, count: int) -> None:
        """The record of what was taken out."""
        rows = []
        size = 0
        for _ in range(count):
            row = row_from_json(REDACTION, lines.next("redaction")["redaction"])
            json_text(row["events"], "events", object)
            size += len(row["events"])
            if size > _MOST_REDACTION_BYTES:
                raise Unfit(f"its redactions name more events than {_MOST_REDACTION_BYTES:,} characters tell")
            rows.append(RedactionRow(0, **row))
            async with self._database.writing() as connection:
                await connection.execute(insert(redaction).values(**row, experiment_id=self.of.id))
        self._seals = SealCheck.of(rows)
        if self._seals.problems:
            raise Unfit(self._seals.problems[0])

    def check_room(self) -> None:
        """Raise `StoreError` where the disk cannot hold what the pack says that it has."""
        room = self._database.dialect.room()
        need = sum(row["payload_bytes"] + row["last_seq"] * EVENT_BYTES for row in self.claims)
        if room is not None and need > room:
            raise StoreError(
                f"unpacking takes about {need / 1e6:,.0f} MB, and {room / 1e6:,.0f} MB are free beside "
                f"{self._database.where}. Make room, or unpack into a store elsewhere with --store."
            )

    async def events(self, lines: _Lines, version: int, progress: Callable[[int, int], None] | None) -> None:
        """Every batch with its events, each held against the chain before it is taken."""
        total = sum(row["last_seq"] for row in self.claims)
        done = 0
        for ordinal, claims in enumerate(self.claims, 1):
            sealed = Chain(ordinal, claims["uuid"], version)
            self._seals.link(ordinal, 0, chain.first_link(claims["uuid"]))
            base = claims["id"] << SEQ_BITS
            size = 0
            while sealed.last_seq < claims["last_seq"]:
                part = row_from_json(BATCH, lines.next("batch")["batch"])
                sealed.begin(part)
                for _ in range(part["count"]):
                    row = self._event(lines.next(), sealed)
                    row[0] = base | sealed.last_seq
                    self._seals.see(ordinal, claims["role"], sealed.last_seq, row[7], row[-2], row[-1])
                    if (problem := self._seals.unsealed()) is not None:
                        raise Unfit(problem)
                    size += len(row[-1])
                    if size > claims["payload_bytes"]:
                        raise Unfit(f"recorder {ordinal} has more bytes of payload than it says")
                    self._rows.append(row)
                    self._row_bytes += len(row[-1]) + len(row[-2] or "")
                    self._reached[claims["id"]] = sealed.last_seq
                    done += 1
                    if len(self._rows) >= FLUSH_EVENTS or self._row_bytes >= FLUSH_BYTES:
                        await self._flush()
                        if progress:
                            progress(done, total)
                sealed.end()
                self._seals.link(ordinal, sealed.last_seq, part["chain_hash"])
                self._batches.append({**part, "recorder_id": claims["id"]})
            sealed.hold_against(claims)
            self._complete.append({f"new_{key}": value for key, value in claims.items() if key not in ("uuid", "role")})
            if len(self._batches) + len(self._complete) >= FLUSH_EVENTS:
                await self._flush()
        await self._flush()
        for problem in self._seals.finish({ordinal: each["uuid"] for ordinal, each in enumerate(self.claims, 1)}):
            raise Unfit(problem)

    def _event(self, data: dict[str, Any], sealed: Chain) -> list[Any]:
        """An event's row, its names not yet ids; the chain takes note of it."""
        unknown = data.keys() - _EVENT_FIELDS
        if unknown:
            raise Unfit(f"unknown field {sorted(unknown)[0]!r} of an event")
        kind = _KIND.get(data["kind"]) if isinstance(data.get("kind"), str) else None
        if kind is None:
            raise Unfit(f"kind {data.get('kind')!r} is none of {', '.join(KINDS)}")
        ts = integer(data.get("ts"), "ts", -_INT64, _INT64 - 1)
        channel, sender, recipient = (_bytes(data, field) for field in ("channel", "from_id", "to_id"))
        if channel is None and data["kind"] not in ("gap", "mark"):
            raise Unfit(f"a {data['kind']} event has no channel")
        for agent in (sender, recipient):
            if agent is not None and (AGENT, agent) not in self._names:
                _check_id(agent)
        payload = _bytes(data, "payload") or b""
        flags = integer(data.get("flags", 0), "flags", 0, 255)
        if is_no_text(payload) and not flags & NO_TEXT:
            raise Unfit("a payload that is no text is not marked so")
        duration, receivers = (_optional(data, field) for field in ("duration_ns", "receivers"))
        msg_id = None if data.get("msg_id") is None else text(data["msg_id"], "msg_id")
        meta = None if data.get("meta") is None else text(data["meta"], "meta")
        if meta is not None:
            check_depth(json_text(meta, "meta", dict), "meta")
        origin, cause = self._cause(data.get("cause"))
        sealed.add(ts, kind, flags, channel, sender, recipient, msg_id, duration, receivers, origin, meta, payload)
        names = [
            None if value is None else (what, value)
            for what, value in ((CHANNEL, channel), (AGENT, sender), (AGENT, recipient))
        ]
        return [None, self.of.id, ts, kind, *names, flags, msg_id, duration, receivers, cause, meta, payload]

    def _cause(self, given: Any) -> tuple[int | None, int | None]:
        """A cause as the chain has it, and as the row has it."""
        if given is None:
            return None, None
        if not isinstance(given, list) or len(given) != 2:
            raise Unfit("cause is not a recorder's number and a seq")
        ordinal = integer(given[0], "the recorder of a cause", 1, len(self.claims))
        seq = integer(given[1], "the seq of a cause", 1, (1 << SEQ_BITS) - 1)
        return ordinal << SEQ_BITS | seq, self.claims[ordinal - 1]["id"] << SEQ_BITS | seq

    async def _flush(self) -> None:
        """Write what was collected: all of it or nothing."""
        wanted = {key for row in self._rows for key in row[4:7] if key is not None} - self._names.keys()
        if len(self._names) + len(wanted) > _MOST_NAMES or self._name_bytes > _MOST_NAME_BYTES:
            self._names.clear()
            self._name_bytes = 0
            wanted = {key for row in self._rows for key in row[4:7] if key is not None}
        if wanted:
            self._names |= await intern(self._database, self.of.id, wanted)
            self._name_bytes += sum(len(value) for _, value in wanted)
        for row in self._rows:
            row[4:7] = [None if key is None else self._names[key] for key in row[4:7]]
        async with self._database.writing() as connection:
            alive = await connection.execute(
                update(recorder).where(recorder.c.id == self._worker).values(heartbeat_at=time.time_ns())
            )
            if alive.rowcount != 1:
                raise StoreError("this unpacking was taken for dead and cleared away; unpack again")
            if self._rows:
                await self._database.dialect.insert(connection, _INSERT, [tuple(row) for row in self._rows])
            for number, last_seq in self._reached.items():
                await connection.execute(update(recorder).where(recorder.c.id == number).values(last_seq=last_seq))
            if self._batches:
                await connection.execute(insert(batch), self._batches)
            if self._complete:
                values: dict[str, Any] = {key: bindparam(f"new_{key}") for key in COUNTED}
                done = update(recorder).where(recorder.c.id == bindparam("new_id")).values(**values)
                await connection.execute(done, self._complete)
        self._rows, self._batches, self._complete, self._row_bytes = [], [], [], 0
        self._reached.clear()

    async def publish(self, of: dict[str, Any], exp_id: str) -> None:
        """Make it visible, in one step."""
        if of["status"] == "closed":
            await deliveries.work_out(self._database, self.of.id)
        async with self._database.writing() as connection:
            taken = select(experiment.c.id).where(experiment.c.exp_id == exp_id)
            if (await connection.execute(taken)).first() is not None:
                raise ExperimentExists(exp_id, "Unpack it under another --exp.")
            await connection.execute(delete(recorder).where(recorder.c.id == self._worker))
            published = await connection.execute(
                update(experiment)
                .where(experiment.c.id == self.of.id, experiment.c.status == "importing")
                .values(exp_id=exp_id, status=of["status"], recorders=len(self.claims))
            )
            if published.rowcount != 1:
                raise StoreError("this unpacking was taken for dead and cleared away; unpack again")


def _recorder(data: Any, ordinal: int) -> dict[str, Any]:
    row = row_from_json(RECORDER, data)
    if row["ordinal"] != ordinal:
        raise Unfit(f"recorder {row['ordinal']} stands where recorder {ordinal} should")
    if not _UUID.fullmatch(row["uuid"]):
        raise Unfit(f"{row['uuid']!r} is no name of a recorder")
    if not all(isinstance(pattern, str) for pattern in json_text(row["patterns"], "patterns", list)):
        raise Unfit("patterns is not a list of strings")
    check_depth(json_text(row["meta"], "meta", dict), "meta")
    integer(row["last_seq"], "last_seq", 0, (1 << SEQ_BITS) - 1)
    integer(row["payload_bytes"], "payload_bytes", 0, _INT64 - 1)
    if row["ended_at"] is None:  # one from the future would be alive for ever
        row["heartbeat_at"] = min(row["heartbeat_at"], time.time_ns())
    return row


def _check_id(agent: bytes) -> None:
    """An id that readers can read, and that is kept in one way only."""
    try:
        value = json_text(agent.decode(), "an id", object)
    except UnicodeDecodeError:
        raise Unfit("an id is not UTF-8") from None
    check_depth(value, "an id")
    if agent_value(value) != agent:
        raise Unfit("an id is JSON, but not as it is kept")


def _optional(data: dict[str, Any], field: str) -> int | None:
    value = data.get(field)
    return None if value is None else integer(value, field, -_INT64 + 1, _INT64 - 1)


def _bytes(data: dict[str, Any], field: str) -> bytes | None:
    """A field's exact bytes: of its text, or of its base64."""
    packed = data.get(f"{field}_base64")
    if packed is None:
        plain = data.get(field)
        return None if plain is None else text(plain, field).encode()
    if field in data:
        raise Unfit(f"both {field} and {field}_base64")
    try:
        return base64.b64decode(packed, validate=True)
    except (ValueError, TypeError, binascii.Error):
        raise Unfit(f"{field}_base64 is not base64") from None


class _Lines:
    """The lines of a pack. Raises `BadFile`, or `Unfit` for what is wrong with the line read last."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self._file: Any = None
        self._number = 0
        self._sha = hashlib.sha256()
        self._above = ""

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the file open, unpacked where it is gzip."""
        try:
            with contextlib.ExitStack() as stack:
                raw: Any = sys.stdin.buffer if self.path == "-" else stack.enter_context(open(self.path, "rb"))
                buffered = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
                zipped = buffered.peek(2)[:2] == b"\x1f\x8b"
                self._file = stack.enter_context(gzip.GzipFile(fileobj=buffered)) if zipped else buffered
                yield
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise self.bad(f"the gzip data is damaged ({error})") from None
        except OSError as error:
            raise BadFile(self.path, None, error.strerror or str(error)) from None

    def next(self, *keys: str) -> dict[str, Any]:
        """The next line, an object; with `keys`, one of exactly these fields."""
        line = self._file.readline(MOST_LINE_BYTES + 1)
        self._number += 1
        if not line.endswith(b"\n"):
            raise Unfit("the pack ends here, too early" if len(line) <= MOST_LINE_BYTES else "the line is too long")
        self._above = self._sha.hexdigest()
        self._sha.update(line)
        if is_crowded(line):
            raise Unfit(f"made of more than {MOST_PARTS:,} values")
        try:
            data = json.loads(line)
        except UnicodeDecodeError:
            raise Unfit("not UTF-8") from None
        except (ValueError, RecursionError) as error:
            raise Unfit(f"not JSON ({error})") from None
        if not isinstance(data, dict):
            raise Unfit("not a JSON object")
        if keys and data.keys() != set(keys):
            raise Unfit(f"here {' and '.join(keys)} should stand")
        return data

    def check_end(self) -> None:
        """The last line has the hash of all above, and nothing follows."""
        said = self.next("end")["end"]
        if said != self._above:
            raise Unfit(f"the lines above have the SHA-256 {self._above}, not {said}: something in them was changed")
        if self._file.readline(1):
            raise Unfit("something follows the end of the pack")

    def bad(self, reason: str) -> BadFile:
        """What is wrong with the line that was read last."""
        return BadFile(self.path, self._number or None, reason)

"""Names, each stored once per experiment: channels as bytes, ids of agents as JSON, Messagers as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select

from messager import channels

from ..db.codes import AGENT, CHANNEL, MESSAGER
from ..db.database import Database
from ..db.schema import name
from ..errors import BadEvent
from ..json_text import dump, is_no_text
from . import chain
from .event import Fields, fields

_Name = tuple[int, bytes]
"""`name.what`, and the value."""
_Given = tuple[int, bytes | None]

_KIND, _NAMED = fields("kind"), fields("channel", "from_id", "to_id", "messager")
_SIMPLE = (int, str, type(None))
_MAX_TOGETHER = 100_000

LOOKUP = 500
"""Names in one query."""


def agent_value(agent_id: Any) -> bytes:
    """Return an agent's id as it is stored: JSON, so that 5 is not "5"."""
    return dump(agent_id).encode()


def name_hash(value: bytes) -> bytes:
    """Return the key of a name's unique index: names can be longer than an index accepts."""
    return hashlib.sha256(value).digest()[:16]


async def intern(database: Database, experiment_id: int, wanted: Iterable[tuple[int, bytes]]) -> dict[_Name, int]:
    """Return the ids of names, each `(what, value)`, after inserting those that the experiment does not have yet.

    In a short transaction of its own and in sorted order: two writers that inserted the same names in opposite order
    would deadlock.
    """
    hashes = {key: name_hash(key[1]) for key in sorted(wanted)}
    rows = [
        {
            "experiment_id": experiment_id,
            "what": what,
            "value": value,
            "hash": digest,
            "text": None if is_no_text(value) else value.decode(),
        }
        for (what, value), digest in hashes.items()
    ]
    found: dict[_Name, int] = {}
    async with database.writing() as connection:
        await connection.execute(database.dialect.insert_or_ignore(name), rows)
        for what in {what for what, _ in hashes}:  # the index begins with experiment and kind
            every = [digest for (kind, _), digest in hashes.items() if kind == what]
            for at in range(0, len(every), LOOKUP):
                query = select(name.c.hash, name.c.id).where(
                    name.c.experiment_id == experiment_id,
                    name.c.what == what,
                    name.c.hash.in_(every[at : at + LOOKUP]),
                )
                for digest, number in await connection.execute(query):
                    found[what, digest] = number
    return {(what, value): found[what, digest] for (what, value), digest in hashes.items()}


class EventNames(NamedTuple):
    """The names of one event: their ids, and their values as the chain encodes them."""

    channel_id: int | None
    from_id: int | None
    to_id: int | None
    messager_id: int | None
    encoded: bytes
    """The results of `chain.name`, joined."""


class NameWriter:
    """Ids of the names of one experiment, for one writer; new names are inserted before the rows that refer to them."""

    def __init__(self, database: Database, experiment_id: int) -> None:
        self._database = database
        self._experiment_id = experiment_id
        self._ids: dict[_Name, int] = {}
        self._agents: dict[Any, bytes] = {}  # values of agents, by `_agent_key`: making JSON is slow
        self._together: dict[Any, EventNames] = {}
        """By `(channel, from_id, its class, to_id, its class, messager)`: most events repeat earlier names."""

    async def resolve(self, events: Sequence[Fields]) -> list[EventNames]:
        """Return the names of each event. New ones are interned, in a transaction of their own.

        Raises `BadEvent` for a channel or an id that cannot be kept.
        """
        together = self._together
        found: list[EventNames | None] = []
        unknown: list[int] = []
        for channel, from_id, to_id, messager in map(_NAMED, events):
            try:
                names = together.get((channel, from_id, from_id.__class__, to_id, to_id.__class__, messager))
            except TypeError:  # an id that cannot be the key of a dict
                names = None
            if names is None:
                unknown.append(len(found))
            found.append(names)
        if unknown:
            values = {index: self._values(index, events[index]) for index in unknown}
            await self._intern({(what, value) for each in values.values() for what, value in each if value is not None})
            for index, each in values.items():
                found[index] = self._remember(events[index], *each)
        return found  # type: ignore[return-value]

    def _values(self, index: int, event: Fields) -> tuple[_Given, _Given, _Given, _Given]:
        """Return the values of an event's channel, sender, recipient and Messager."""
        channel, from_id, to_id, messager = _NAMED(event)
        try:
            encoded = None if channel is None else channels.encode(channel)
            by = None if messager is None else messager.encode()
            return (CHANNEL, encoded), (AGENT, self._agent(from_id)), (AGENT, self._agent(to_id)), (MESSAGER, by)
        except Exception as error:  # of any kind: the ids are objects of the caller
            raise BadEvent(
                index, f"a {_KIND(event)} event has a channel or an id that cannot be kept: {error}"
            ) from None

    def _agent(self, agent_id: Any) -> bytes | None:
        if agent_id is None:
            return None
        if agent_id.__class__ not in _SIMPLE:
            return agent_value(agent_id)
        key = agent_id.__class__, agent_id
        if (value := self._agents.get(key)) is None:
            value = self._agents[key] = agent_value(agent_id)
        return value

    async def _intern(self, names: set[_Name]) -> None:
        """Insert names, and cache their ids after the commit."""
        if new := names - self._ids.keys():
            self._ids |= await intern(self._database, self._experiment_id, new)

    def _remember(self, event: Fields, *names: _Given) -> EventNames:
        """Return the names of an event, all of which have ids now."""
        channel, from_id, to_id, messager = _NAMED(event)
        ids = (None if value is None else self._ids[what, value] for what, value in names)
        channel_id, sender, recipient, by = ids
        found = EventNames(channel_id, sender, recipient, by, b"".join(chain.name(value) for _, value in names))
        if from_id.__class__ in _SIMPLE and to_id.__class__ in _SIMPLE:  # 1 == True, for example
            if len(self._together) >= _MAX_TOGETHER:
                self._together.clear()
            self._together[channel, from_id, from_id.__class__, to_id, to_id.__class__, messager] = found
        return found


class NameReader:
    """Names by id, fetched on first use."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.values: dict[int | None, Any] = {None: None}
        """The id of an agent, or the text of another name, by the id of the name."""

    async def load(self, ids: set[int]) -> None:
        """Fetch the names that are not known yet."""
        missing = sorted(ids - self.values.keys())
        async with self._database.reading() as connection:
            for at in range(0, len(missing), LOOKUP):
                listed = ", ".join(map(str, missing[at : at + LOOKUP]))
                query = f"SELECT id, what, value FROM name WHERE id IN ({listed})"
                for number, what, value in await self._database.dialect.fetch(connection, query, ()):
                    self.values[number] = decoded(what, value)


def decoded(what: int, value: bytes) -> Any:
    """Return the id of an agent, or the text of another name."""
    return json.loads(value) if what == AGENT else channels.decode(value)


async def all_names(database: Database, experiment_id: int, what: int) -> dict[int, Any]:
    """Return the text of every channel, or the id of every agent, of an experiment by the id of the name."""
    query = select(name.c.id, name.c.value).where(name.c.experiment_id == experiment_id, name.c.what == what)
    async with database.reading() as connection:
        rows = await connection.execute(query)
        return {number: decoded(what, value) for number, value in rows}


def agent_text(agent: Any) -> str | None:
    """Return an id as text, as tables have it: a text is itself, other ids are JSON; None for none."""
    return agent if agent is None or isinstance(agent, str) else json.dumps(agent, ensure_ascii=False)


def name_text(name: str) -> str:
    """Return the name of a channel, and `hex:` with its bytes if these are not UTF-8, as in `event_view`."""
    return name if is_utf_8(name) else f"hex:{channels.encode(name).hex().upper()}"


def is_utf_8(text: str) -> bool:
    """Return whether a text has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_utf_8(text: str) -> str:
    """Return a text with lone surrogates as escapes."""
    return text if is_utf_8(text) else text.encode("utf-8", "backslashreplace").decode()

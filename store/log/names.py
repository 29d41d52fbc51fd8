"""Names of channels and agents, kept once each: a channel is its bytes, an agent its id as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from messager import channels

from ..db.schema import AGENT, CHANNEL, name
from ..json_text import dump, is_no_text
from . import chain

if TYPE_CHECKING:
    from ..db.database import Database

Known = tuple[int, bytes]
"""A name's id and its value."""
_Name = tuple[int, bytes]

_SIMPLE = (int, str, type(None))
_MOST_TOGETHER = 100_000

LOOKUP = 500
"""Names asked for in one query."""


def agent_value(agent_id: Any) -> bytes:
    """An agent's id as it is kept: JSON, so that 5 is not "5"."""
    return dump(agent_id).encode()


def agent_key(agent_id: Any) -> Any:
    """What tells one agent's id from another in a dict; 1, True and "1" are three."""
    return (agent_id.__class__, agent_id) if agent_id.__class__ in (int, str) else dump(agent_id)


def name_hash(value: bytes) -> bytes:
    """What makes a name unique: names can be longer than an index takes."""
    return hashlib.sha256(value).digest()[:16]


async def intern(database: Database, experiment_id: int, wanted: Iterable[tuple[int, bytes]]) -> dict[_Name, int]:
    """The ids of names, each (what, value); those that an experiment does not have yet are given one.

    In a short transaction of its own and in sorted order: two writers that insert the same
    names in opposite orders would deadlock.
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
        every = list(hashes.values())
        for at in range(0, len(every), LOOKUP):
            query = select(name.c.what, name.c.hash, name.c.id).where(
                name.c.experiment_id == experiment_id, name.c.hash.in_(every[at : at + LOOKUP])
            )
            for what, digest, number in await connection.execute(query):
                found[what, digest] = number
    return {(what, value): found[what, digest] for (what, value), digest in hashes.items()}


class Unknown(Exception):
    """A channel, an agent or a recorder that an event names has no id, as far as its writer knows."""

    index = 0
    """Which event of the batch names it."""


class NameWriter:
    """The names one recorder uses, interned before the events that use them."""

    def __init__(self, database: Database, experiment_id: int) -> None:
        self._database = database
        self._experiment_id = experiment_id
        self.channels: dict[str, Known] = {}
        self.agents: dict[Any, Known] = {}
        self.together: dict[Any, tuple[int | None, int | None, int | None, tuple[int, int, int], bytes]] = {}
        """What `of` gives, by `(channel, from_id, its class, to_id, its class)`: most events repeat those before."""

    def of(
        self, channel: str | None, from_id: Any, to_id: Any
    ) -> tuple[int | None, int | None, int | None, tuple[int, int, int], bytes]:
        """The ids of the three names of an event, and the names as the chain encodes them.

        Raises `Unknown` where one has not been interned, and what making an id into JSON raises.
        """
        nobody: tuple[None, None] = (None, None)
        spoken_in = nobody if channel is None else self.channels.get(channel)
        spoken_by = nobody if from_id is None else self.agents.get(agent_key(from_id))
        spoken_to = nobody if to_id is None else self.agents.get(agent_key(to_id))
        if spoken_in is None or spoken_by is None or spoken_to is None:
            raise Unknown
        (channel_id, spoken), (sender, sending), (recipient, receiving) = spoken_in, spoken_by, spoken_to
        found = (channel_id, sender, recipient, *chain.names(spoken, sending, receiving))
        if from_id.__class__ in _SIMPLE and to_id.__class__ in _SIMPLE:  # others may be equal and not the same
            if len(self.together) >= _MOST_TOGETHER:
                self.together.clear()
            self.together[channel, from_id, from_id.__class__, to_id, to_id.__class__] = found
        return found

    async def intern(self, new_channels: Iterable[str], new_agents: Iterable[Any]) -> None:
        """Give every name an id. It is remembered only once it is committed."""
        wanted: dict[tuple[int, bytes], list[tuple[dict[Any, Known], Any]]] = {}
        for channel in new_channels:
            wanted.setdefault((CHANNEL, channels.encode(channel)), []).append((self.channels, channel))
        for agent in new_agents:
            wanted.setdefault((AGENT, agent_value(agent)), []).append((self.agents, agent_key(agent)))
        found = await intern(self._database, self._experiment_id, wanted)
        for key, places in wanted.items():
            for cache, word in places:
                cache[word] = (found[key], key[1])


class NameReader:
    """Names by id, fetched when first met."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.values: dict[int | None, Any] = {None: None}
        """A channel's text or an agent's id, by the id of the name."""

    async def load(self, ids: set[int]) -> None:
        """Fetch those that are not known yet."""
        missing = sorted(ids - self.values.keys())
        async with self._database.reading() as connection:
            for at in range(0, len(missing), LOOKUP):
                query = select(name.c.id, name.c.what, name.c.value).where(name.c.id.in_(missing[at : at + LOOKUP]))
                for number, what, value in await connection.execute(query):
                    self.values[number] = channels.decode(value) if what == CHANNEL else json.loads(value)


async def all_names(database: Database, experiment_id: int, what: int) -> dict[int, Any]:
    """Every channel's text, or every agent's id, of an experiment, by the id of the name."""
    query = select(name.c.id, name.c.value).where(name.c.experiment_id == experiment_id, name.c.what == what)
    async with database.reading() as connection:
        rows = await connection.execute(query)
        return {number: channels.decode(value) if what == CHANNEL else json.loads(value) for number, value in rows}

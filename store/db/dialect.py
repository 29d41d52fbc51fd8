"""What the store needs of a database, beyond SQL that all of them understand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Insert, Table
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ..errors import StoreError
from .statements import Commit, Part


@dataclass(frozen=True, slots=True)
class Need:
    """Room that something takes for a while, and what is free there, in bytes."""

    folder: str
    bytes: int
    free: int | None
    """None where nobody can tell."""


class Appender(Protocol):
    """Writes batches; see `Database.append`."""

    async def write(self, expected: Mapping[str, Any], parts: Iterator[Part]) -> Commit | None:
        """Write a batch in one transaction. Raises the driver's errors: the batch may have been committed or not."""

    async def close(self) -> None:
        """Finish what is being written and close the connections."""


class Dialect(Protocol):
    """One database. Its connections come from the two engines it makes."""

    location: str
    """The store as people should see it: an absolute path, or a URL without credentials."""

    spool_folder: str
    """Where recorders keep their events while the store is away, unless told otherwise."""

    errors: tuple[type[Exception], ...]
    """What its driver raises, through SQLAlchemy or straight; `translate` makes ours of them."""

    commits_late: bool
    """Whether a batch whose append failed may still be committed afterwards, by a server that has not noticed yet."""

    look_seconds: float | None
    """How long connecting and a look at the tables may take; None for as long as it takes."""

    def exists(self) -> bool:
        """Whether there is anything to open."""

    def look(self) -> None:
        """Say what is wrong with the place, if something is. Raises `StoreUnavailable` or `NotAStore`."""

    async def close(self) -> None:
        """Give up what is there only for as long as the store is open."""

    def engines(self) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
        """One engine for writing, one for reading, and one for writing what takes long. Makes what is not there."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """One's turn to write, where the writers of a process have to take turns."""

    def insert_or_ignore(self, table: Table) -> Insert:
        """An INSERT that passes over rows whose unique key is there already."""

    async def fetch(self, connection: AsyncConnection, sql: str, parameters: Sequence[Any]) -> Iterable[Any]:
        """Every row of a query, as tuples, straight from the driver."""

    def appender(self) -> Appender:
        """Return a new appender, with connections of its own."""

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows, with all columns of the table, straight through the driver.

        Inside a transaction in which something was executed before.
        """

    async def translate(self, error: Exception) -> StoreError:
        """A driver's error as one of ours, with its reason and a remedy. May ask the database what is behind it."""

    async def check_place(self, connection: AsyncConnection) -> None:
        """Where no table was found: say why none can be seen, if so. Raises `StoreUnavailable` or `StoreNotFound`."""

    async def overwrite_deleted(self, connection: AsyncConnection) -> None:
        """From now on, this connection overwrites with zeros what it deletes, where the database can."""

    async def want_rewrite(self, connection: AsyncConnection) -> None:
        """Keep, with this transaction, that `rewrite` has to follow it."""

    async def rewrite_wanted(self, connection: AsyncConnection) -> bool:
        """Whether `rewrite` was to follow a transaction and has not been finished since."""

    async def rewrite(self, connection: AsyncConnection) -> str | None:
        """Write the store anew without what was deleted, journals included. Not inside a transaction.

        Why it could not be finished: other programs were in the way for too long, or the disk is full.
        """

    async def size(self, connection: AsyncConnection) -> int:
        """Bytes the whole store takes on disk."""

    def room(self) -> int | None:
        """Bytes that are free where the store lies; None where nobody can tell."""

    async def bytes_on_disk(self, connection: AsyncConnection) -> int:
        """Bytes the store takes on disk, with what is not yet merged into it."""

    async def slack(self, connection: AsyncConnection) -> int | None:
        """Bytes inside the store that are free for new events; None where nobody can tell."""

    async def rewriting_needs(self, connection: AsyncConnection) -> list[Need]:
        """The room that `rewrite` takes for a while, a line for each file system."""

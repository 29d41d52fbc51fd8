"""The interface of a database: everything that differs between databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Insert, Table
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from ..errors import StoreError
from .statements import Commit, Part


@dataclass(frozen=True, slots=True)
class Need:
    """Temporary disk space that an operation needs in one folder, and what is free there, in bytes."""

    folder: str
    bytes: int
    free: int | None
    """None if unknown."""


class Appender(Protocol):
    """Writes batches; see `Database.append`."""

    async def write(self, expected: Mapping[str, Any], parts: Iterator[Part]) -> Commit | None:
        """Write a batch in one transaction. Raises the driver's errors: the batch may have been committed or not."""

    async def close(self) -> None:
        """Finish what is being written and close the connections."""


class Dialect(Protocol):
    """One database, given by a URL or a file name. The defaults are those of a server that tells nothing of itself."""

    location: str
    """The store as shown to people: an absolute path, or a URL without credentials."""

    spool_folders: tuple[str, ...]
    """Default folders of spools, in which recorders keep events while the store is unreachable, the first choice first.
    """

    derived_folders: tuple[str, ...]
    """Folders for files that are computed from events (`derived_files`), the first choice first."""

    may_write: bool = True
    """False if this user is known to lack the right to write to the store; known once it is open."""

    errors: tuple[type[Exception], ...]
    """The errors of its driver, raised through SQLAlchemy or directly; `translate` turns them into `StoreError`."""

    commits_late: bool
    """True if a server may commit a batch after its append failed on the client."""

    open_seconds: float | None
    """Time limit of connecting and checking the tables, in seconds; None for no limit."""

    one_host_file: str | None = None
    """The file of a store that only processes of its host may open (see `one_host`); None for a server."""

    replay_index: str = "event"
    """What stands behind FROM in a query of `event` that must go through its index `ix_event_replay`."""

    def exists(self) -> bool:
        """Return whether the store may exist; a server is always asked."""
        return True

    def check_location(self) -> None:
        """Check the location before connecting. Raises `StoreUnavailable` or `NotAStore`."""
        return

    async def close(self) -> None:
        """Release what exists only while the store is open."""
        return

    def engines(self) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
        """Return engines for writing, for reading, and for writes without time limit. Creates a missing file."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Hold the turn to write, if the writers of one process must take turns."""
        return nullcontext()

    def insert_or_ignore(self, table: Table) -> Insert:
        """Return an INSERT that skips rows whose unique key exists."""

    async def fetch(self, connection: AsyncConnection, sql: str, parameters: Sequence[Any]) -> Iterable[Any]:
        """Return the rows of a query as tuples, directly from the driver."""

    async def prefer_indexes(self, connection: AsyncConnection) -> None:
        """Read through indexes wherever one fits, until the transaction ends, as with large tables."""
        return

    def appender(self) -> Appender:
        """Return a new appender, with connections of its own."""

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows that have all columns of the table, directly through the driver.

        Requires a transaction in which a statement was executed before.
        """

    async def translate(self, error: Exception) -> StoreError:
        """Return the `StoreError` for an error of the driver. May query the database for the cause."""

    async def check_visible(self, connection: AsyncConnection) -> None:
        """Check why no table was found. Raises `StoreUnavailable` or `StoreNotFound` if none can be seen."""
        return

    async def overwrite_deleted(self, connection: AsyncConnection) -> None:
        """Make this connection overwrite deleted data with zeros, if the database can."""
        return

    async def want_rewrite(self, connection: AsyncConnection) -> None:
        """Record in this transaction that `rewrite` must follow it."""

    async def rewrite_wanted(self, connection: AsyncConnection) -> bool:
        """Return whether a `rewrite` that must follow a transaction has not been finished."""

    async def rewrite(self, connection: AsyncConnection) -> str | None:
        """Rewrite the store without deleted data, journals included. Not inside a transaction.

        Returns the reason if it could not be finished: other programs blocked it, or the disk is full.
        """

    async def size(self, connection: AsyncConnection) -> int:
        """Return the size of the store in bytes."""

    def free_bytes(self) -> int | None:
        """Return the free bytes on the disk of the store, None if unknown."""
        return None

    async def bytes_on_disk(self, connection: AsyncConnection) -> int:
        """Return the bytes that the store takes on disk, its journal included."""
        return await self.size(connection)

    async def slack(self, connection: AsyncConnection) -> int | None:
        """Return the free bytes inside the store, None if unknown."""
        return None

    async def rewriting_needs(self, connection: AsyncConnection) -> list[Need]:
        """Return the temporary space that `rewrite` needs, one entry per file system."""

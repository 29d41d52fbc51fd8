"""The errors of the store. Each carries the facts and the remedy.

StoreError                    exit code 2 on the command line
├── StoreUnavailable          3   the database cannot be reached or opened
│   └── StoreNotFound         3   the store does not exist
├── NotAStore                     the file or database is not a store
├── DamagedStore                  the database is damaged
├── DamagedAttributes             the attributes of an event were changed
├── WrongRevision                 the tables are of an older or a newer version
├── DowngradeRefused              an older revision cannot keep what the log guarantees
├── ExperimentNotFound
├── AmbiguousExperiment
├── ExperimentExists
├── ExperimentClosed
├── ExperimentBusy                a recorder is still recording
├── ExperimentChanged             tagged, closed or recorded into since it was read
├── ScrubUnfinished               redacted, but old pages are still in the file
├── StoreBusy                     recorders are writing into the store
├── RecorderExists                the recording of a pack is in the store already
├── RecorderFenced                the recorder was ended or taken over
├── BadEvent                      an event that the log cannot hold
├── BadCursor                     a point in an experiment that cannot be read
├── BadFile                       an import file, with the number of the wrong line
├── StatementFailed               an SQL statement that cannot be run, and where it is wrong
├── StatementTimedOut             an SQL statement that reached its time limit
├── SpoolHeld                     a live recorder holds the spool
├── SpoolDamaged                  a spool that cannot be read
├── SpoolFull                     the spool cannot hold more events
├── NoPostgres                    messager_store.testing found no PostgreSQL to start
├── CastError                     live agents that a recording does not have, or cannot tell apart
├── LiveAgentFailed               the task of a live agent raised
├── LockstepStopped               a replay with live agents gave up a wait
│   ├── PrefixDiverged            a live agent did not repeat the prefix of a fork
│   └── ProgramsMissing           live programs of a fork did not come
├── JudgeFailed                   the judge of a `Match` raised
├── ReplayRefused                 a replay that would do harm was not started
├── VirtualTimeRefused            an operation that virtual time cannot have, such as a socket
├── Deadlock                      in virtual time, every task waits for another
├── PortTaken                 3   another program listens on the port of `messager view`
├── OutputFailed              3   an output file cannot be written, for example because its disk is full
└── ReplayFailed              3   the broker became unreachable during a replay
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import Any

from messager.errors import restored


class StoreError(Exception):
    """Base of all errors that this package raises deliberately."""

    exit_code = 2

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (type(self), self.args, vars(self))


class StoreUnavailable(StoreError):
    """The store cannot be reached."""

    exit_code = 3

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(f"the store {location} is not available: {reason}")
        self.location = location
        self.reason = reason


class StoreNotFound(StoreUnavailable):
    """The store does not exist: no file, no database, no schema, or no tables."""


class NotAStore(StoreError):
    """The file is not a store of messager."""

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(f"{location} is not a messager store: {reason}. Name another with --store.")
        self.location = location


class DamagedStore(StoreError):
    """The database is damaged."""

    def __init__(self, location: str, reason: str, otherwise: str = "") -> None:
        remedy = f"Restore it from a copy{', ' if otherwise else ''}{otherwise}"
        super().__init__(f"the store {location} is damaged ({reason}). {remedy}.")
        self.location = location


class DamagedAttributes(StoreError):
    """The attributes of an event are not those of an event."""

    def __init__(self, text: object) -> None:
        super().__init__(
            f"an event has damaged attributes ({text!r:.60}). `messager verify` says which; restore it from a copy."
        )


class WrongRevision(StoreError):
    """The store's tables are of another version."""

    def __init__(self, location: str, found: str, expected: str, *, newer: bool) -> None:
        remedy = (
            "It was made by another version, a newer or an unreleased one: install that version (`pip install PATH`, "
            "the path of its checkout), or export it there, and import it here."
            if newer
            else f"Upgrade it with `messager --store {quote(location)} db upgrade`."
            if "://" not in location
            else "Upgrade it with `messager db upgrade` and the same --store."  # it names no user
        )
        super().__init__(f"the store {location} is at revision {found}, this messager needs {expected}. {remedy}")
        self.location, self.found, self.expected, self.newer = location, found, expected, newer


class DowngradeRefused(StoreError):
    """An older revision cannot keep a guarantee of the log; nothing was changed."""

    def __init__(self, revision: str, reasons: Sequence[str]) -> None:
        super().__init__(
            f"the store cannot go back to revision {revision}: {'; '.join(reasons)}. Keep the store as it is, "
            "or take these experiments out of it first, with `messager pack` and `messager rm`."
        )
        self.revision, self.reasons = revision, list(reasons)


class ExperimentNotFound(StoreError):
    """No experiment has that exp_id, prefix or name."""

    def __init__(self, wanted: str, nearest: Iterable[str] = ()) -> None:
        near = list(nearest)
        hint = f" Did you mean {' or '.join(near)}?" if near else " `messager ls` lists the experiments."
        super().__init__(f"there is no experiment {wanted!r}.{hint}")
        self.wanted, self.nearest = wanted, near


class AmbiguousExperiment(StoreError):
    """Several experiments match."""

    def __init__(self, wanted: str, fitting: Iterable[str]) -> None:
        fits = list(fitting)
        shown = ", ".join(fits[:5]) + (f" and {len(fits) - 5} more" if len(fits) > 5 else "")
        super().__init__(f"{wanted!r} matches {len(fits)} experiments: {shown}. Give more of the exp_id.")
        self.wanted, self.fitting = wanted, fits


class ExperimentExists(StoreError):
    """The exp_id is in use."""

    def __init__(self, exp_id: str, remedy: str) -> None:
        super().__init__(f"the experiment {exp_id!r} exists already. {remedy}")
        self.exp_id = exp_id


class ExperimentClosed(StoreError):
    """The experiment is closed and accepts no more events."""

    def __init__(self, exp_id: str) -> None:
        super().__init__(
            f"the experiment {exp_id!r} is closed and takes no more events. "
            'Record under another exp_id, or let if_exists="new" (--if-exists new) choose one.'
        )
        self.exp_id = exp_id


class ExperimentBusy(StoreError):
    """A recorder is still recording into the experiment."""

    def __init__(
        self, exp_id: str, recorders: Iterable[str], intent: str = "close it", *, remedy: str | None = None
    ) -> None:
        remedy = remedy or (
            f"End that first, or {intent} all the same with --force: what they record afterwards is refused."
        )
        super().__init__(f"the experiment {exp_id!r} is being recorded by {', '.join(recorders)}. {remedy}")
        self.exp_id = exp_id


class ExperimentChanged(StoreError):
    """The experiment has changed since it was read."""

    def __init__(self, exp_id: str) -> None:
        super().__init__(
            f"the experiment {exp_id!r} was tagged, closed or recorded into meanwhile: look at it, and choose again"
        )
        self.exp_id = exp_id


class ScrubUnfinished(StoreError):
    """The log is redacted, but the file could not be rewritten: old pages may still hold the redacted data."""

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(
            f"the log is as it should be, but the file {location} may still hold what was taken out: {reason}. "
            f"Finish it with `messager redact --scrub --store {quote(location)}`."
        )
        self.location, self.reason = location, reason


class StoreBusy(StoreError):
    """Recorders are writing into the store."""

    def __init__(self, location: str, recorders: Sequence[str]) -> None:
        more = f" and {len(recorders) - 3} more" if len(recorders) > 3 else ""
        verb = "are" if len(recorders) > 1 else "is"
        super().__init__(
            f"{', '.join(recorders[:3])}{more} {verb} still writing into {location}, and would have to wait. "
            "Do it when that has ended, or all the same with --force."
        )
        self.location = location


class RecorderExists(StoreError):
    """The recording of a pack is in the store already."""

    def __init__(self, path: str, recorder: str, exp_id: str | None) -> None:
        where = f"here already, in the experiment {exp_id!r}" if exp_id else "being unpacked, or removed, right now"
        super().__init__(
            f"{path}: its recorder {recorder} is {where}; a store holds a recording once. Unpack into another --store."
        )
        self.path, self.recorder, self.exp_id = path, recorder, exp_id


class RecorderFenced(StoreError):
    """The recorder was ended or taken over and can append nothing more."""

    def __init__(self, recorder: str, reason: str) -> None:
        super().__init__(f"recorder {recorder} can append nothing more: {reason}")
        self.recorder = recorder


class BadEvent(StoreError):
    """The log cannot hold an event; `index` is its position in the batch."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


class BadCursor(StoreError):
    """A point is not a cursor, time, offset or mark."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(
            f"{text!r} is not a point in an experiment{': ' + reason if reason else ''}. "
            "Give a time such as 10:30 or 2026-03-01T10:30, an offset "
            "from the start such as 90 or 1.5h (from the end: -30s), a cursor ts:recorder:seq, or mark:NAME."
        )
        self.text = text


class BadFile(StoreError):
    """An import file cannot be read."""

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        super().__init__(f"{path}{f', line {line}' if line else ''}: {reason}. Nothing was imported.")
        self.path, self.line, self.reason = path, line, reason


class StatementFailed(StoreError):
    """An SQL statement cannot be run. `position` is the index of the place in `statement`, if the database tells it."""

    def __init__(self, reason: str, statement: str = "", position: int | None = None) -> None:
        where = ""
        if position is not None:
            line = statement.count("\n", 0, position) + 1
            where = f" (line {line}, column {position - statement.rfind(chr(10), 0, position)})"
        super().__init__(f"the statement cannot be run: {reason}{where}")
        self.reason, self.statement, self.position = reason, statement, position


class StatementTimedOut(StoreError):
    """An SQL statement, or the reading of its result, reached the time limit."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the statement was ended at its time limit of {seconds:g} s. Ask for less, or give more with --timeout."
        )
        self.seconds = seconds


class PortTaken(StoreError):
    """Another program listens on the port."""

    exit_code = 3


class OutputFailed(StoreError):
    """Writing an output file failed, for example because its disk is full."""

    exit_code = 3

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot write {path}: {reason}. Free space, or choose another file with -o.")
        self.path, self.reason = path, reason


class SpoolHeld(StoreError):
    """A live recorder holds the spool and drains it itself."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the spool {path} is held by a live recorder, which drains it itself")
        self.path = path


class SpoolDamaged(StoreError):
    """A spool cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the spool {path} cannot be read: {reason}")
        self.path, self.reason = path, reason


class SpoolFull(StoreError):
    """The spool is at its maximum size, or the disk is full."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"the spool {path} takes no more events: {reason}. Make room, or name another folder with MESSAGER_SPOOL"
        )
        self.path, self.reason = path, reason


class JudgeFailed(StoreError):
    """The judge of a `Match` raised instead of giving a verdict. Its error is the cause."""

    def __init__(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}".removesuffix(": ").removesuffix(".")
        super().__init__(f"the judge of the Match raised {reason}. Correct it, or let it return False there.")


class ReplayRefused(StoreError):
    """A replay would do harm and was not started; nothing was published."""


class VirtualTimeRefused(StoreError):
    """A socket, pipe or subprocess was used in virtual time."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"{operation} does not work in virtual time, which cannot tell how long an answer from outside takes. "
            "Use the in-memory broker, or `RealThread` for what needs a connection, or run in real time."
        )
        self.operation = operation


class Deadlock(StoreError):
    """In virtual time, no task is ready and no timer is set: nothing would ever happen again."""

    def __init__(self, tasks: Sequence[str]) -> None:
        more = f" and {len(tasks) - 5} more" if len(tasks) > 5 else ""
        super().__init__(
            f"every task waits for another, without a time-out: {', '.join(tasks[:5])}{more}. Give a wait a time-out; "
            "hold virtual time with `loop.hold()` if another thread is to answer."
        )
        self.tasks = list(tasks)


class ReplayFailed(StoreError):
    """A replay could not continue; nothing was sent twice."""

    exit_code = 3

"""Signed announcements: what live programs of a run tell each other cannot be forged, nor repeated by others.

    64 hexadecimal digits, a space, {"run", "from", "number", "at", "to", "content"}

The digits are the HMAC-SHA256 of what follows the space, with the key of the run. `from` is a random name,
and `number` counts the announcements of that name: one that is not higher than the last is refused. What was announced
before a reader subscribed may be of a sender that has ended, and be repeated by somebody who kept it. So it counts only
if it is later than the subscription, by the clock (`at`, ns), or names the reader among those its sender has heard of
(`to`). A reader takes a new name whenever it may have missed something, and who hears a new name tells it everything.

Who has the key can take part in a replay with live programs. It is in a file, and never on the wire. By default the
file is in the state folder of the user, for this user only, by the exp_id of the live programs. A run lasts as long as
anybody takes part: each program holds a shared lock on the file. Who finds no other makes a new key, and the last one
removes the file. Programs of other users or machines get a copy, named by `MESSAGER_REPLAY_KEY`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import StoreError

LONGEST = 4 * 1024 * 1024
"""Bytes of an announcement."""
MOST_SENDERS = 10_000
_SEAL = 65
"""Bytes before the signed ones."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A genuine announcement of another sender."""

    unknown: bool
    """True for the first one of a sender: it may not know this reader yet."""
    content: dict[str, Any] | None
    """What it says; None if that may be a repetition."""


class Signer:
    """Signs the announcements of one program of a run, and checks those of others."""

    def __init__(self, run: str, key: bytes) -> None:
        self._run = run
        self._key = key
        self.refused = 0
        """Announcements that were forged, repeated, too long, or not well formed."""
        self._names: set[str] = set()
        self._last: dict[str, int] = {}  # number of the last announcement, by sender
        self.begin()

    def begin(self) -> None:
        """Take a new name: call it before each subscription, and after a gap."""
        self._name, self._number, self._since = secrets.token_hex(8), 0, time.time_ns()
        self._names.add(self._name)

    def sign(self, content: dict[str, Any]) -> bytes:
        """Return the next announcement. Raises `StoreError` for one that is too long."""
        self._number += 1
        known = list(self._last)
        fields = {"run": self._run, "from": self._name, "number": self._number, "at": time.time_ns(), "to": known}
        body = json.dumps({**fields, "content": content}).encode()
        if len(body) + _SEAL > LONGEST:
            raise StoreError(
                f"a live program announces {len(body):,} bytes, and {LONGEST:,} are the most: subscribe to patterns"
            )
        return self._seal(body) + body

    def read(self, payload: bytes) -> Announcement | None:
        """Return an announcement of another sender; None if it is an own one, or refused."""
        fields = self._fields(payload)
        if fields is None:
            self.refused += 1
            return None
        sender, number = fields["from"], fields["number"]
        if sender in self._names:
            return None
        last = self._last.get(sender)
        if number <= (last or 0) or (last is None and len(self._last) >= MOST_SENDERS):
            self.refused += 1
            return None
        self._last[sender] = number
        fresh = fields["at"] > self._since or self._name in fields["to"]
        return Announcement(last is None, fields["content"] if fresh else None)

    def _seal(self, body: bytes) -> bytes:
        return hmac.new(self._key, body, hashlib.sha256).hexdigest().encode() + b" "

    def _fields(self, payload: bytes) -> dict[str, Any] | None:
        """Return the fields of an announcement of this run; None for anything else. Nothing is parsed unsigned."""
        if len(payload) > LONGEST:
            return None
        seal, body = payload[:_SEAL], payload[_SEAL:]
        if not hmac.compare_digest(seal, self._seal(body)):
            return None
        try:
            fields = json.loads(body)
        except (ValueError, RecursionError):
            return None
        of_type = {"run": str, "from": str, "number": int, "at": int, "to": list, "content": dict}
        if not isinstance(fields, dict) or any(type(fields.get(name)) is not kind for name, kind in of_type.items()):
            return None
        return fields if fields["run"] == self._run else None


VARIABLE = "MESSAGER_REPLAY_KEY"
"""Variable with the name of a file that has the key; it is only read."""
SHORTEST, LONGEST = 32, 4096
"""Bytes of a key."""


def key_file(exp_id: str) -> Path:
    """Return the file with the key of the runs of these live programs."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    name = hashlib.sha256(exp_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Path(state, "messager", "replay", f"{name}.key")


def who_needs_it(exp_id: str) -> str:
    """Return a line that says which live programs have to be given the key, and how."""
    whose = "" if os.environ.get(VARIABLE) else "of other users or machines "
    return f"live programs {whose}need the key of the run: {VARIABLE} names their copy of {key_file(exp_id)}"


class RunKey:
    """The key of one run, while this object is open."""

    def __init__(self, exp_id: str) -> None:
        self.file = key_file(exp_id)
        self._given = bool(os.environ.get(VARIABLE))
        self._descriptor: int | None = None

    def open(self) -> bytes:
        """Take part; return the key. Raises `StoreError` if the file cannot be read or made, or others may read it."""
        try:
            if self._given:
                descriptor = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    return self._read(descriptor)
                finally:
                    os.close(descriptor)
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            while self._descriptor is None:
                descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
                if self._joined(descriptor):
                    self._descriptor = descriptor
                else:
                    os.close(descriptor)
            return self._read(self._descriptor)
        except (OSError, ValueError) as error:  # a name with NUL is a ValueError
            reason = getattr(error, "strerror", None) or error
            raise StoreError(
                f"the key of the replay, {self.file}, cannot be used: {reason}. Name another file with {VARIABLE}"
            ) from None

    def close(self) -> None:
        """Take part no more."""
        import fcntl

        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(self.file)
        except OSError:
            pass  # others take part, or it is gone
        finally:
            os.close(descriptor)

    def _joined(self, descriptor: int) -> bool:
        """Lock the file, with a new key if nobody else has it. Return False if it was removed meanwhile."""
        import fcntl

        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, secrets.token_hex(32).encode() + b"\n", 0)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        try:
            return os.path.samestat(os.stat(self.file), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _read(self, descriptor: int) -> bytes:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise StoreError(f"the key of the replay, {self.file}, is not a file: name one with {VARIABLE}")
        if found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0):
            raise StoreError(
                f"others may read or write the key of the replay, {self.file}: make it yours, and `chmod 600` it"
            )
        key = os.pread(descriptor, LONGEST + 1, 0).strip()
        if not SHORTEST <= len(key) <= LONGEST:
            raise StoreError(
                f"{self.file} has no key of {SHORTEST} to {LONGEST:,} bytes: make one with `openssl rand -hex 32`"
            )
        return key

"""Key of a run: who has it can take part in a replay with live programs. It is in a file, and never on the wire.

By default the file is in the state folder of the user, for this user only, by the exp_id of the live programs. A run
lasts as long as anybody takes part: each program holds a shared lock on the file. Who finds no other makes a new key,
and the last one removes the file. Programs of other users or machines get a copy, named by `MESSAGER_REPLAY_KEY`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from pathlib import Path

from ..errors import StoreError

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

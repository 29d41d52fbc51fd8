"""Signed announcements: what live programs of a run tell each other cannot be forged, nor repeated by others.

    64 hexadecimal digits, a space, {"run", "from", "number", "at", "to", "content"}

The digits are the HMAC-SHA256 of what follows the space, with the key of the run (`run_key`). `from` is a random name,
and `number` counts the announcements of that name: one that is not higher than the last is refused. What was announced
before a reader subscribed may be of a sender that has ended, and be repeated by somebody who kept it. So it counts only
if it is later than the subscription, by the clock (`at`, ns), or names the reader among those its sender has heard of
(`to`). A reader takes a new name whenever it may have missed something, and who hears a new name tells it everything.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
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

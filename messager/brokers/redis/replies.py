"""Parsers of what Redis reports about its subscribers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..protocol import Backlog, OutputLimits

DEFAULT_LIMITS = (32 * 1024 * 1024, 8 * 1024 * 1024)
"""Default of `client-output-buffer-limit pubsub`, bytes that may wait for a subscriber: hard and soft."""
COUNTED_BELOW = 16 * 1024
"""Default of `min-string-size-avoid-copy-reply`, which Valkey 9 and Redis 8.6 have; assumed where CONFIG is refused."""
_CLIENT = re.compile(rb"^.* sub=(?P<sub>\d+) psub=(?P<psub>\d+) .*\bobl=(?P<obl>\d+) .*\bomem=(?P<omem>\d+)\b.*$", re.M)
_UNHEARD = re.compile(rb"^cmdstat_(xadd|spublish):calls=(\d+)", re.M)
"""Commands that send messages which PSUBSCRIBE does not bring."""
_PUBSUB_LIMITS = re.compile(rb"\bpubsub (\d+) (\d+) ")


class Client(NamedTuple):
    """A subscribed client: a line of CLIENT LIST TYPE pubsub."""

    names: int
    """Channels that it is subscribed to by name."""
    patterns: int
    waiting: int
    """Bytes in its output buffer: the fixed part (obl) and the list (omem)."""
    line: bytes


def clients_in(answers: Iterable[bytes]) -> list[Client]:
    """Return the clients of one or more answers to CLIENT LIST."""
    return [
        Client(int(line["sub"]), int(line["psub"]), int(line["obl"]) + int(line["omem"]), line[0])
        for answer in answers
        for line in _CLIENT.finditer(answer)
    ]


def backlog_of(clients: Sequence[Client]) -> Backlog:
    """Return what waits for the slowest client, and the most copies of one message that one client may get."""
    slowest = max(clients, key=lambda client: client.waiting, default=Client(0, 0, 0, b""))
    copies = max((min(client.names, 1) + client.patterns for client in clients), default=0)
    fields = dict(field.partition("=")[::2] for field in slowest.line.decode("utf-8", "replace").split(" "))
    name = fields.get("name")
    delivered = int(fields["tot-net-out"]) if "tot-net-out" in fields else None
    return Backlog(slowest.waiting, fields.get("addr", "?") + (f" ({name})" if name else ""), copies, delivered)


def output_limits_in(
    answers: Iterable[Sequence[bytes]] | None, references: Iterable[Sequence[bytes]] | None
) -> OutputLimits:
    """Return the strictest limits of the answers to CONFIG GET; the defaults where it is refused (None).

    `references` answers for `min-string-size-avoid-copy-reply`. It is empty for a server that counts all payloads.
    """
    counted_below: int | None = COUNTED_BELOW
    if references is not None:
        counted_below = min((int(answer[1]) for answer in references if len(answer) > 1), default=None)
    found = [_PUBSUB_LIMITS.search(answer[1]) for answer in answers or () if len(answer) > 1]
    limits = [(int(each[1]), int(each[2])) for each in found if each is not None] or [DEFAULT_LIMITS]
    hard, soft = (min((limit for limit in of_each if limit), default=None) for of_each in zip(*limits, strict=True))
    return OutputLimits(hard, soft, counted_below)


def unheard_in(answers: Iterable[bytes]) -> dict[str, int]:
    """Return the calls of commands whose messages pattern subscribers do not get, from answers to INFO."""
    counts: Counter[str] = Counter()
    for answer in answers:
        if b"\nrole:slave" not in answer:  # a replica counts what its master passes on
            for command, calls in _UNHEARD.findall(answer):
                counts[command.decode().upper()] += int(calls)
    return {command: calls for command, calls in sorted(counts.items()) if calls}

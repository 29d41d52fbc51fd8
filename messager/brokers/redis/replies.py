"""Parsers of what Redis reports about its subscribers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..base import Backlog, OutputLimits

DEFAULT_LIMITS = (32 * 1024 * 1024, 8 * 1024 * 1024)
"""Default of `client-output-buffer-limit pubsub`, bytes that may wait for a subscriber: hard and soft."""
COUNTED_BELOW = 16 * 1024
"""Default of `min-string-size-avoid-copy-reply`, which Valkey 9 and Redis 8.6 have; assumed where CONFIG is refused."""
_N = rb"([0-9]{1,18})"
_CLIENT = re.compile(rb"^.* sub=%b psub=%b .*\bobl=%b .*\bomem=%b\b.*$" % (_N, _N, _N, _N), re.M)
_UNHEARD = re.compile(rb"^cmdstat_(xadd|spublish):calls=%b\b" % _N, re.M)
"""Commands that send messages which PSUBSCRIBE does not bring."""
_PUBSUB_LIMITS = re.compile(rb"\bpubsub %b %b " % (_N, _N))
_NET_OUT = re.compile(rb"\btot-net-out=%b\b" % _N)
_WHOLE = re.compile(_N)


class Client(NamedTuple):
    """A subscribed client: a line of CLIENT LIST TYPE pubsub."""

    names: int
    """Channels that it is subscribed to by name."""
    patterns: int
    waiting: int
    """Bytes in its output buffer: the fixed part (obl) and the list (omem)."""
    line: bytes


def text_in(answer: Any) -> bytes:
    """Return an answer that is one string. Raises `TypeError` for any other, as the next ones do."""
    if not isinstance(answer, bytes):
        raise TypeError
    return answer


def texts_in(answer: Any) -> list[bytes]:
    """Return an answer that is a list of strings."""
    if not isinstance(answer, list):
        raise TypeError
    return list(map(text_in, answer))


def time_in(answer: Any) -> int:
    """Return the time (ns UTC) of an answer to TIME. Raises `ValueError` for one that no clock has."""
    seconds, micros = (int(part[:19]) for part in texts_in(answer))
    if not (0 <= seconds < 1 << 33 and 0 <= micros < 1_000_000):
        raise ValueError
    return seconds * 1_000_000_000 + micros * 1_000


def counts_in(number: int, answer: Any) -> list[int]:
    """Return the counts of an answer to PUBSUB NUMSUB about this number of channels: channel, count, channel ..."""
    if not isinstance(answer, list) or len(answer) != 2 * number:
        raise TypeError
    return list(map(int, answer[1::2]))


def clients_in(answers: Iterable[bytes]) -> list[Client]:
    """Return the clients of one or more answers to CLIENT LIST."""
    return [
        Client(int(line[1]), int(line[2]), int(line[3]) + int(line[4]), line[0])
        for answer in answers
        for line in _CLIENT.finditer(answer)
    ]


def backlog_of(clients: Sequence[Client]) -> Backlog:
    """Return what waits for the slowest client, and the most copies of one message that one client may get."""
    slowest = max(clients, key=lambda client: client.waiting, default=Client(0, 0, 0, b""))
    copies = max((min(client.names, 1) + client.patterns for client in clients), default=0)
    fields = dict(field.partition("=")[::2] for field in slowest.line.decode("utf-8", "replace").split(" "))
    name = fields.get("name")
    delivered = _NET_OUT.search(slowest.line)
    return Backlog(
        slowest.waiting,
        fields.get("addr", "?") + (f" ({name})" if name else ""),
        copies,
        None if delivered is None else int(delivered[1]),
    )


def output_limits_in(
    answers: Iterable[Sequence[bytes]] | None, references: Iterable[Sequence[bytes]] | None
) -> OutputLimits:
    """Return the strictest limits of the answers to CONFIG GET; the defaults where it is refused (None).

    `references` answers for `min-string-size-avoid-copy-reply`. It is empty for a server that counts all payloads.
    """
    counted_below: int | None = COUNTED_BELOW
    if references is not None:
        sizes = [answer[1] for answer in references if len(answer) > 1]
        counted_below = min((int(size) for size in sizes if _WHOLE.fullmatch(size)), default=None)
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

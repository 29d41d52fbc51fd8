"""A statement that a user wrote, and the interface of its result.

A database runs it as one statement that cannot write, in a transaction of its own that ends with the result and never
outlives the time limit. It reads the tables of the store, the views of every experiment, and the views of one
experiment that this module defines; those exist only for the statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .codes import KINDS

ONLY_READS = "it may only read: SELECT, WITH or VALUES, and no function that opens files"
ONLY_EXP = "its only parameter is :exp, the exp_id of the experiment"
"""Reasons of `StatementFailed` that both databases give."""


@dataclass(frozen=True, slots=True)
class UserQuery:
    """A statement about one experiment."""

    statement: str
    experiment_id: int
    exp_id: str
    """The value of the parameter `:exp`."""
    seconds: float
    """Time limit of the statement and of reading its result."""


class Rows(Protocol):
    """The result of a statement, read from the database while it is fetched."""

    columns: Sequence[str]

    async def fetch(self, most: int) -> list[Sequence[Any]]:
        """Return the next rows, at most so many; none at the end. Raises `StatementFailed`, `StatementTimedOut`."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """The expressions of the views that differ between databases; `{}` is what they apply to."""

    text: str
    """An id as text."""
    member: str
    """A text in the JSON object `{}`, `{key}` of it."""
    number: str
    """An integer, the same."""
    minute: str
    """The time of a bucket as ISO text."""
    agent: str
    """The id of an agent, from its row of `name`."""
    channel: str
    """A channel, from its row of `name`."""


VIEWS = {
    "messages": (
        *("time", "kind", "channel", "from_id", "to_id", "text", "ts", "received_at", "sender", "recipient"),
        *("payload", "msg_id", "duration_ns", "receivers", "meta", "messager", "arrival", "cause", "origin"),
        *("recorder", "seq", "cursor", "derived", "indexed", "id"),
    ),
    "events": (
        *("time", "kind", "channel", "from_id", "to_id", "text", "ts", "sender", "recipient"),
        *("payload", "msg_id", "duration_ns", "receivers", "meta", "messager", "arrival", "cause", "origin"),
        *("recorder", "seq", "cursor", "derived", "indexed", "id"),
    ),
    "deliveries": (
        *("time", "channel", "from_id", "to_id", "text", "ts", "received_at", "delay_ms", "sender", "recipient"),
        *("sending_id", "event_id"),
    ),
    "marks": ("time", "name", "fields", "ts", "recorder", "seq", "cursor", "id"),
    "gaps": ("time", "reason", "since", "until", "ts", "recorder", "seq", "cursor", "id"),
    "minutes": (
        *("minute", "kind", "channel", "from_id", "to_id", "messages", "payload_bytes", "sender", "recipient"),
        *("ts", "recorder"),
    ),
}
"""The views of one experiment, and their columns."""

_SOURCES = {
    "messages": "message WHERE experiment_id = {experiment_id}",
    "events": "event_view WHERE experiment_id = {experiment_id}",
    "deliveries": "(SELECT s.*, d.sending_id, d.event_id, d.received_at FROM event_view s "
    "JOIN delivery d ON d.sending_id = s.id WHERE s.experiment_id = {experiment_id}) delivered",
    "marks": "event_view WHERE experiment_id = {experiment_id} AND kind = 'mark'",
    "gaps": "event_view WHERE experiment_id = {experiment_id} AND kind = 'gap'",
    "minutes": "(SELECT a.bucket, a.kind, a.messages, a.payload_bytes, r.ordinal AS recorder, "
    "{channel} AS channel, {from_id} AS from_id, {to_id} AS to_id "
    "FROM recorder r JOIN activity a ON a.recorder_id = r.id LEFT JOIN name c ON c.id = a.channel_id "
    "LEFT JOIN name f ON f.id = a.from_id LEFT JOIN name t ON t.id = a.to_id "
    "WHERE r.experiment_id = {experiment_id}) counted",
}
_SENDINGS = (
    "(SELECT s.*, (SELECT min(d.received_at) FROM delivery d WHERE d.sending_id = s.id) AS received_at "
    "FROM event_view s WHERE s.experiment_id = {experiment_id} AND s.kind = 'sent') sendings"
)


def views_named(statement: str) -> list[str]:
    """Return the views whose names are in a statement."""
    words = set(re.findall(r"\w+", statement.lower()))
    return [view for view in VIEWS if view in words]


def received(experiment_id: int) -> str:
    """Return a query for the receptions and the failures of an experiment, and for the receptions with a sending.

    Without failures, and if each reception has a sending, the messages are the sendings: the rule that the view
    `message` follows then needs not be applied to each event, which takes two to five times as long.
    """
    recorders = f"FROM recorder r WHERE r.experiment_id = {experiment_id}"
    return (
        f"SELECT (SELECT coalesce(sum(r.received_count), 0) {recorders}), "
        f"(SELECT coalesce(sum(r.failed_count), 0) {recorders}), "
        "(SELECT count(*) FROM recorder r JOIN delivery d "
        "ON d.event_id >= r.id << 40 AND d.event_id < (r.id + 1) << 40 "
        f"WHERE r.experiment_id = {experiment_id})"
    )


def view_statements(
    experiment_id: int, expressions: Expressions, counts: tuple[int, int, int] | None = None
) -> dict[str, str]:
    """Return the SELECT of each view for one experiment. Its id is a constant, so that only its events are read.

    `counts` are the result of `received`, of the snapshot that the statement will read.
    """
    sources = _SOURCES
    if counts is not None and counts[1] == 0 and counts[0] == counts[2]:
        sources = sources | {"messages": _SENDINGS}
    own = {
        "sender": expressions.text.format("from_id"),
        "recipient": expressions.text.format("to_id"),
        "delay_ms": "CAST(received_at - ts AS DOUBLE PRECISION) / 1000000",
        "name": expressions.member.format("meta", key="name"),
        "fields": expressions.member.format("meta", key="fields"),
        "reason": expressions.member.format("meta", key="reason"),
        "since": expressions.number.format("meta", key="since"),
        "until": expressions.number.format("meta", key="until"),
        "minute": expressions.minute.format("bucket"),
    }
    of_minutes = {
        "kind": "CASE abs(kind) {} END".format(
            " ".join(f"WHEN {code} THEN '{kind}'" for code, kind in enumerate(KINDS, 1)),
        ),
        "ts": "bucket",
    }
    names = {
        "channel": expressions.channel.format("c"),
        "from_id": expressions.agent.format("f"),
        "to_id": expressions.agent.format("t"),
    }
    found = {}
    for view, columns in VIEWS.items():
        made = own | of_minutes if view == "minutes" else own
        shown = ", ".join(f"{made[column]} AS {column}" if column in made else column for column in columns)
        found[view] = f"SELECT {shown} FROM {sources[view].format(experiment_id=experiment_id, **names)}"
    return found

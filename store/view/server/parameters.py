"""Parameters of requests: filters of the page as a `Selection`, points, tail positions."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.datastructures import QueryParams

from messager import channels

from ...errors import StoreError
from ...experiments.records import Experiment
from ...log.event import Cursor
from ...log.event_log import EventLog
from ...log.names import name_text
from ...log.selection import Filters, Selection

_NUMBER = re.compile(r"-?[0-9]{1,19}", re.A)
_SEEN = re.compile(r"[1-9][0-9]{0,8}:[0-9]{1,13}", re.A)


async def selection(given: QueryParams, log: EventLog, of: Experiment) -> Selection:
    """Return the events that the filters of the page select.

    `q` is text that was said. `agent`, repeatable, is an id as JSON; so is `between`, given twice. `channel` is the
    name of a channel as the page shows it, `kind` a kind of event; both are repeatable. `since` and `until` are points.
    Raises `StoreError`.
    """
    filters: Filters = {"since": point(given.get("since")), "until": point(given.get("until"))}
    if given.get("q"):
        filters["grep"] = given["q"]
    if agents := given.getlist("agent"):
        filters["agents"] = [_json(agent) for agent in agents]
    if between := given.getlist("between"):
        one, *others = map(_json, between)
        filters["between"] = one, others
    if wanted := set(given.getlist("channel")):
        known = await log.channels(of)
        filters["channels"] = [channels.literal(name) for name in known if name_text(name) in wanted]
    if kinds := given.getlist("kind"):
        filters["kinds"] = kinds
    return Selection(**filters)


def point(text: str | None) -> Cursor | int | None:
    """Return a cursor, or a time in ns UTC; None for nothing. Raises `BadCursor`."""
    if not text:
        return None
    return int(text) if _NUMBER.fullmatch(text) else Cursor.parse(text)


def number(given: QueryParams, name: str, default: int, most: int) -> int:
    """Return a positive number. Raises `StoreError`."""
    text = given.get(name) or str(default)
    if not _NUMBER.fullmatch(text) or int(text) < 1:
        raise StoreError(f"{name}={text!r} is no number above 0: leave it out, or give one up to {most}")
    return min(int(text), most)


def one_of(given: QueryParams, name: str, *values: str) -> str:
    """Return one of some values, the first unless another is given. Raises `StoreError`."""
    text = given.get(name, values[0])
    if text not in values:
        raise StoreError(f"{name}={text!r}: give {' or '.join(values)}")
    return text


def position(text: str | None) -> dict[int, int]:
    """Return a tail position `{recorder: seq}`, written as `1:42,2:17`. Raises `StoreError`."""
    parts = text.split(",") if text else []
    if not all(map(_SEEN.fullmatch, parts)):
        raise StoreError(f"{text!r} is no tail position: give recorder:seq of each recorder, such as 1:42,2:17")
    return {int(recorder): int(seq) for recorder, _, seq in (part.partition(":") for part in parts)}


def followed(text: str | None) -> tuple[dict[int, int], Cursor | None]:
    """Return what `position_text` wrote. Raises `StoreError`."""
    seen, _, told = (text or "").partition("@")
    return position(seen), Cursor.parse(told) if told else None


def position_text(seen: dict[int, int], told: Cursor | None = None) -> str:
    """Return a tail position, and the cursor of the last message that was told, such as `1:42,2:17@1700:1:42`."""
    text = ",".join(f"{recorder}:{seq}" for recorder, seq in sorted(seen.items()))
    return text if told is None else f"{text}@{told}"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise StoreError(f'the agent {text!r} is not JSON: give 5 or "5"') from None

"""Selections by content: SQL preselects, Python decides, and the index changes neither the result nor its order."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterator
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from messager_store import EventLog, NewEvent
from messager_store.db.codes import REDACTED
from messager_store.log.selection import Selection
from tests.support.examples import WITH_STORE

_names = (f"s{number}" for number in itertools.count())


def made(kind: str, ts: int, channel: str, payload: bytes, from_id: Any, to_id: Any) -> NewEvent:
    if kind == "mark":
        text = payload.decode(errors="replace").replace("\0", "")
        return NewEvent(kind, ts, None, b"", meta={"name": text, "fields": {}})
    return NewEvent(kind, ts, channel, payload, from_id, to_id)


WORDS = [
    "fire",
    "FIRE",
    "ﬁre",
    "占い",
    "占い師",
    "うらない",
    "Straße",
    "STRASSE",
    "é",
    "e\u0301",
    "a%b_c",
    "'",
    "\0",
    "x",
]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
fields = st.fixed_dictionaries(
    {"content": words},
    optional={"price": st.sampled_from([1, 2, 2.0, True, None, "2", "two"]), "of": st.just({"x": 3})},
)
payloads = st.one_of(
    words.map(str.encode), fields.map(lambda value: json.dumps(value).encode()), st.just(b"\xff fire"), st.just(b"")
)
events = st.tuples(
    st.sampled_from(["sent", "sent", "received", "mark"]),
    st.integers(0, 9),
    st.sampled_from(["a", "b"]),
    payloads,
    st.sampled_from([1, "1", 2, None]),
    st.sampled_from([1, 2, None]),
).map(lambda fields: made(*fields))
filters = st.fixed_dictionaries(
    {},
    optional={
        "grep": st.lists(st.sampled_from(WORDS), min_size=1, max_size=2),
        "where": st.lists(
            st.sampled_from(["price=2", 'price="2"', "price > 1", "content ~ fire", "of.x != 4"]), max_size=2
        ),
        "between": st.just((1, 2)),
        "kinds": st.just(["sent", "mark"]),
        "channels": st.just("a"),
        "limit": st.integers(0, 5),
    },
)


def folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text.replace("\0", "\u2400")).casefold()


def expected(entries: list[Any], chosen: dict[str, Any]) -> Iterator[Any]:
    """Yield the events that a selection takes, computed from the fields of the events alone."""
    found = 0
    for entry in entries:
        if found == chosen.get("limit"):
            return
        if entry.kind not in chosen.get("kinds", [entry.kind]):
            continue
        if "channels" in chosen and entry.channel != "a":
            continue
        pair = [json.dumps(one) for one in (entry.from_id, entry.to_id)]
        if "between" in chosen and pair not in (["1", "2"], ["2", "1"]):
            continue
        if (chosen.get("grep") or chosen.get("where")) and entry.redacted:
            continue
        if not any(folded(word) in folded(entry.text) for word in chosen.get("grep", [""])):
            continue
        if not all(fulfils(entry.payload, condition) for condition in chosen.get("where", [])):
            continue
        found += 1
        yield entry


def fulfils(payload: bytes, condition: str) -> bool:
    try:
        value = json.loads(payload)
    except ValueError:
        return False
    if not isinstance(value, dict):
        return False
    price, number = value.get("price"), isinstance(value.get("price"), int | float)
    number = number and not isinstance(price, bool)
    return {
        "price=2": (number and price == 2) or price == "2",
        'price="2"': price == "2",
        "price > 1": number and price > 1,
        "content ~ fire": "fire" in folded(value["content"]),
        "of.x != 4": "of" in value,
    }[condition]


@given(st.lists(events, max_size=12), st.lists(events, max_size=6), st.integers(0, 12), filters)
@settings(WITH_STORE, phases=[Phase.explicit, Phase.generate])
async def test_an_index_changes_nothing_but_the_time(
    log: EventLog, first: list[NewEvent], more: list[NewEvent], redacted: int, chosen: dict[str, Any]
) -> None:
    first = [e._replace(flags=REDACTED, payload=b"") if at == redacted else e for at, e in enumerate(first)]
    of = await log.create_experiment(next(_names))
    writer = await log.register(of, role="tap")
    await log.append(writer, first)
    await log.append(writer, more)
    everything = [entry async for entry in log.read(of)]
    wanted = [entry.cursor for entry in expected(everything, chosen)]
    assert [entry.cursor async for entry in log.read(of, Selection(**chosen))] == wanted
    assert [entry.cursor async for entry in log.read(of, **chosen)] == wanted
    limited = chosen.get("limit")
    taken = [entry.cursor for entry in everything if Selection(**chosen).takes(entry)]
    assert taken[:limited] == wanted

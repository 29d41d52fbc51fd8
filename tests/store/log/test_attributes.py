"""Attributes of events: one text for each event, checked where it is written and where it comes from others."""

from __future__ import annotations

from pathlib import Path

import pytest

from messager_store import EventLog, NewEvent
from messager_store.errors import DamagedAttributes
from messager_store.log.attributes import ATTRIBUTES, checked, decode, encode
from tests.support import messager, sql
from tests.support.logs import filled, listed, sent

WHOLE = {
    "msg_id": "m",
    "duration_ns": 5,
    "receivers": 2,
    "cause": ["a" * 32, 7],
    "arrival": 0,
    "origin": ["b" * 32, 1],
    "carrier": "queue",
    "meta": {"name": "ü"},
}


def test_every_attribute_comes_back_and_an_event_without_any_has_no_text() -> None:
    assert WHOLE.keys() == {attribute.name for attribute in ATTRIBUTES}
    text = encode(WHOLE)
    assert decode(text) == checked(text) == WHOLE
    assert encode({}) is encode({"meta": None}) is None and decode(None) == checked(None) == {}


async def test_an_event_has_a_field_for_each_attribute_also_if_it_has_none_of_them(log: EventLog) -> None:
    names = tuple(attribute.name for attribute in ATTRIBUTES)
    assert NewEvent._fields[-len(names) :] == names
    await filled(log, [sent(1)])
    (entry,) = await listed(log.read("e1"))
    assert [getattr(entry, name) for name in names] == [None] * len(names)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "not JSON"),
        ("[]", "not an object"),
        ("{}", "empty"),
        ('{"a":1,"a":2}', "a key twice"),
        ('{"z":1}', "unknown attribute 'z'"),
        ('{"a":"1.5"}', "arrival"),
        ('{"c":0}', "cause: its seq is 0"),
        ('{"o":["b"]}', "origin"),
        ('{"m":[]}', "meta: it is not a JSON object"),
        ('{"d":9223372036854775808}', "duration_ns: 9223372036854775808 is not between 0"),
        ('{"t":"letter"}', "carrier: 'letter' is none of stream, queue, call"),
        ('{"r":-1}', "receivers: -1 is not between"),
        ('{"r":true}', "receivers: True is not an integer"),
    ],
)
def test_what_no_event_can_have_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        checked(text)


@pytest.mark.parametrize(
    "text",
    [
        *("nonsense", "[]", "5", '{"z":1}', '{"i":5}', '{"a":"x"}', '{"a":true}', '{"a":-1}', '{"d":1e400}'),
        *('{"r":9223372036854775808}', '{"c":{}}', '{"c":1.5}', '{"c":["u"]}', '{"c":["u","x"]}', '{"c":[1,2]}'),
        *('{"o":5}', '{"o":["u","x"]}', '{"m":5}', '{"m":["a","b"]}', '{"m":{}}x'),
    ],
)
def test_attributes_of_a_wrong_type_reach_no_reader(text: str) -> None:
    with pytest.raises(DamagedAttributes):
        decode(text)


async def test_attributes_that_were_changed_in_a_store_are_one_clear_error_and_never_copied(
    log: EventLog, store: str, tmp_path: Path
) -> None:
    await filled(log, [sent(1, receivers=1)])
    for text in ('{"m":5}', "nonsense"):
        sql(store, f"UPDATE event SET attributes = '{text}'")
        with pytest.raises(DamagedAttributes, match="damaged attributes"):
            await listed(log.read("e1"))
    done = messager("events", "e1", "--json", "--store", store, cwd=tmp_path)
    assert done.returncode != 0 and "nonsense" not in done.stdout
    assert done.stderr.count("\n") == 1 and "damaged attributes" in done.stderr, done.stderr

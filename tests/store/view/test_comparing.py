"""Two runs for the page: the alignment, and the file with both."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from messager_store import EventLog, Match, NewEvent, Selection
from messager_store.errors import StoreError
from messager_store.formats.sharing import Sharing
from messager_store.view import comparing
from messager_store.view.comparing import comparison, report_two
from tests.support import messager
from tests.support.logs import filled, sent

KINDS = ("equal", "changed", "moved", "only_a", "only_b")


def said(texts: str, channel: str = "exps:e:agents:1:chat") -> list[NewEvent]:
    return [sent(at, json.dumps({"content": text}).encode(), channel) for at, text in enumerate(texts.split())]


async def two(log: EventLog, a: list[NewEvent], b: list[NewEvent], **options: Any) -> dict[str, Any]:
    found = await filled(log, a, "a"), await filled(log, b, "b")
    return await comparison(log, *found, Selection(), **options)


def rows(found: dict[str, Any]) -> list[tuple[str, int | None, int | None]]:
    """Return the rows as the page reads them."""
    unpacked: list[tuple[str, int | None, int | None]] = []
    next_a = next_b = 0
    columns = (found["rows"][name] for name in ("kind", "a", "b", "length"))
    for code, a, b, length in zip(*columns, strict=True):
        kind = KINDS[code]
        for at in range(length):
            first_a, first_b = next_a + a + at, next_b + b + at
            unpacked.append((kind, None if kind == "only_b" else first_a, None if kind == "only_a" else first_b))
        next_a = next_a if kind == "only_b" else next_a + a + length
        next_b = next_b if kind == "only_a" else next_b + b + length
    return unpacked


def parts(html: str) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for kind, run, data in re.findall(r'data-part="(\w+)" data-run="(\d)">([^<]*)<', html):
        found.setdefault((kind, int(run)), []).append(base64.b64decode(data))
    return found


async def test_every_row_has_the_numbers_of_its_messages(log: EventLog) -> None:
    found = await two(log, said("one two three four five six"), said("one three vier five five2 two"))
    assert rows(found) == [
        ("equal", 0, 0),
        ("moved", 1, 5),
        ("equal", 2, 1),
        ("changed", 3, 2),
        ("equal", 4, 3),
        ("changed", 5, 4),
    ]
    assert found["counts"] == {"equal": 3, "changed": 2, "moved": 1, "only_a": 0, "only_b": 0}
    assert (found["a"], found["b"], found["equal"]) == ("a", "b", False)
    assert (found["messages_a"], found["messages_b"], found["kinds"]) == (6, 6, ["sent", "received"])


async def test_notes_tell_how_names_and_values_were_compared(log: EventLog) -> None:
    a = said("one two", "exps:a:agents:1:chat")
    b = [one._replace(payload=one.payload.replace(b": ", b":")) for one in said("one two", "exps:b:agents:1:chat")]
    found = await two(log, a, b, match=Match())
    assert found["equal"] and found["notes"] == [
        "2 messages equal by value, not byte for byte",
        "channels of A's experiment are compared as channels of B's",
    ]


async def test_the_paths_are_named_in_which_changed_messages_differ_only(log: EventLog) -> None:
    def timed(begin: float) -> list[NewEvent]:
        return [sent(at, json.dumps({"t": begin + at, "content": f"text {at}"}).encode()) for at in range(5)]

    found = await two(log, timed(0), timed(0.5))
    assert found["counts"]["changed"] == 5
    assert found["shared"] == {"messages": 5, "examined": 5, "paths": ["t"]}
    runs = await log.experiment("a"), await log.experiment("b")
    without = await comparison(log, *runs, Selection(), match=Match(ignore=("t",)))
    assert without["equal"] and without["shared"] is None


async def test_runs_that_share_little_have_the_figures_of_both(log: EventLog, tmp_path: Path) -> None:
    def run(word: str, messages: int) -> list[NewEvent]:
        return [one._replace(from_id=7) for one in said(" ".join(f"{word}{at}" for at in range(messages)))]

    found = (await two(log, run("a", 10), run("b", 12)))["summary"]
    assert [(one["messages"], one["agents"]) for one in found["runs"]] == [(10, 1), (12, 1)]
    pair = {"channel": "exps:e:agents:1:chat", "from": "7", "to": None}
    assert found["pairs"] == [pair | {"messages": (10, 12), "delays_s": (None, None)}]
    assert (found["number"], found["outside"]) == (1, 1)
    runs = await log.experiment("a"), await log.experiment("a")
    assert (await comparison(log, *runs, Selection()))["summary"] is None
    await report_two(log, "a", "b", tmp_path / "two.html", Selection(), shared=Sharing(pseudonymise=True))
    [data] = parts((tmp_path / "two.html").read_text())["comparison", 0]
    assert json.loads(zlib.decompress(data))["summary"] is None


async def test_the_values_that_differ_are_in_the_result_as_they_were_recorded(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def numbered(*numbers: str) -> list[NewEvent]:
        return [sent(at, f'{{"n":{number},"same":1.0,"t":{at}}}'.encode()) for at, number in enumerate(numbers)]

    monkeypatch.setattr(comparing, "EXAMINED", 2)
    a, b = numbered("9007199254740993", "1e400", "1"), numbered("9007199254740992", "-0", "2")
    found = await two(log, a, b)
    assert found["values"] == {
        "0:1:1": [["$.n", "9007199254740993", "9007199254740992"]],
        "1:1:2": [["$.n", "1e400", "-0"]],
    }
    assert found["notes"] == ["the values that differ are listed for the first 2 differences"]
    runs = await log.experiment("a"), await log.experiment("b")
    ignored = await comparison(log, *runs, Selection(), match=Match(ignore=["n"]))
    assert ignored["equal"] and ignored["values"] == {}


async def test_the_file_has_both_runs_and_their_alignment(log: EventLog, tmp_path: Path) -> None:
    await filled(log, said("one two three"), "a")
    await filled(log, said("one zwei three four"), "b")
    assert await report_two(log, "a", "b", tmp_path / "two.html", Selection()) == (3, 4)
    found = parts((tmp_path / "two.html").read_text())
    assert {key: len(data) for key, data in found.items()} == {
        ("comparison", 0): 1,
        ("head", 0): 1,
        ("head", 1): 1,
        ("chunk", 0): 1,
        ("chunk", 1): 1,
    }
    heads = [json.loads(zlib.decompress(found["head", run][0])) for run in (0, 1)]
    assert [head["exp_id"] for head in heads] == ["a", "b"]
    assert rows(json.loads(zlib.decompress(found["comparison", 0][0])))[1:] == [
        ("changed", 1, 1),
        ("equal", 2, 2),
        ("only_b", None, 3),
    ]


async def test_a_pseudonymised_file_has_no_name_beside_the_messages(log: EventLog, tmp_path: Path) -> None:
    for name, texts in (("a", "one Rosalind:1"), ("b", "one Rosalind:2")):
        events = [one._replace(from_id="Rosalind") for one in said(texts, f"exps:{name}:agents:Rosalind:chat")]
        await filled(log, events, name)
    await report_two(log, "a", "b", tmp_path / "two.html", Selection(), shared=Sharing(pseudonymise=True))
    found = parts((tmp_path / "two.html").read_text())
    for data in (*found["comparison", 0], *found["head", 0], *found["head", 1]):
        assert b"Rosalind" not in zlib.decompress(data)


async def test_the_rules_are_in_the_file_and_without_their_paths_if_it_is_changed_for_others(
    log: EventLog, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        await filled(log, said("one two"), name)
    match = Match(ignore=("t", "items.*.Rosalind"), shape="**.x", tolerance=0.5)
    found = []
    for shared in (None, Sharing(["content"]), Sharing(pseudonymise=True)):
        await report_two(log, "a", "b", tmp_path / "two.html", Selection(), match=match, shared=shared)
        [data] = parts((tmp_path / "two.html").read_text())["comparison", 0]
        found.append(json.loads(zlib.decompress(data))["match"])
    assert found[0] == match.to_dict() | {"unnamed": 0}
    rest = {"tolerance": 0.5, "bytes_only": False, "unnamed": 3}
    assert found[1:] == [{"ignore": [], "shape": [], **rest}] * 2
    runs = await log.experiment("a"), await log.experiment("b")
    assert (await comparison(log, *runs, Selection()))["match"] is None


async def test_too_many_messages_are_refused(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MOST", 3)
    with pytest.raises(StoreError, match=r"^b has more than 3 messages to show: .* and select some"):
        await two(log, said("one two three"), said("one two three four"))


async def test_report_with_two_experiments_takes_the_rules_of_diff(log: EventLog, store: str, tmp_path: Path) -> None:
    await filled(log, [sent(1, b'{"t": 1, "content": "x"}')], "a")
    await filled(log, [sent(1, b'{"t": 2, "content": "x"}')], "b")
    path = tmp_path / "two.html"
    done = messager("report", "a", "b", "--ignore", "t", "-o", str(path), "--store", store, cwd=tmp_path)
    assert done.returncode == 0 and "wrote 1 message and 1 message to" in done.stderr
    [data] = parts(path.read_text())["comparison", 0]
    assert json.loads(zlib.decompress(data))["equal"] is True
    alone = messager("report", "a", "--ignore", "t", "-o", str(path), "--store", store, cwd=tmp_path)
    assert alone.returncode == 2 and "are for two experiments: name the second one" in alone.stderr

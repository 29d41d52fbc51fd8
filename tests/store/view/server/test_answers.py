"""Answers about experiments: pages of messages, counts, files of the page, errors."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from messager_store import EventLog, NewEvent
from messager_store.log.selection import Selection
from messager_store.queries.counting.count import count
from messager_store.recording.closing import close
from messager_store.view.page import script
from messager_store.view.server import app, questions
from tests.store.view.server.client import Chunk, Client, decoded, viewing
from tests.support import HOSTILE_CHANNELS, HOSTILE_PAYLOADS
from tests.support.logs import filled, sent

MINUTE = 60_000_000_000


async def _messages(client: Client, exp: str = "e1", **query: Any) -> Chunk:
    answer = await client.get(f"/api/run/{exp}/messages?{urlencode(query, doseq=True)}")
    assert answer.status == 200, answer.body
    chunk = decoded(answer.body)
    assert answer.headers.get("last", []) == [_written(last) for last in chunk.cursors[-1:]]
    return chunk


def _written(cursor: tuple[int, int, int]) -> str:
    return ":".join(map(str, cursor))


async def _in_pages(client: Client, direction: str, **query: Any) -> list[tuple[int, int, int]]:
    """Return the cursors of all messages, read page by page in a direction."""
    found: list[tuple[int, int, int]] = []
    place = {} if direction == "after" else {"before": "end"}
    while page := (await _messages(client, **query, **place)).cursors:
        assert page == sorted(page)
        found = found + page if direction == "after" else page + found
        place = {direction: _written(page[-1] if direction == "after" else page[0])}
    return found


async def test_pages_in_both_directions_have_every_message_once(log: EventLog, store: str) -> None:
    events = [sent(number // 3, b"%d" % number, f"c{number % 2}", from_id=number % 5) for number in range(60)]
    events += [NewEvent("blocked", 30, "c0", b"no"), NewEvent("received", 31, "c0", b"copy")]
    of = await filled(log, events)
    await log.append(await log.register(of, role="tap"), [NewEvent("received", 5, "tapped", b"heard")])
    expected = [tuple(entry.cursor) async for entry in log.read(of)]
    assert len(expected) == 63  # nobody recorded the senders of what was received
    async with viewing(store) as client:
        for direction in ("after", "before"):
            assert await _in_pages(client, direction, limit=7) == expected
        assert (await _messages(client)).cursors == expected
        middle = _written(expected[30])
        assert (await _messages(client, **{"before": middle, "and": middle, "limit": 2})).cursors == expected[29:31]
        assert (await _messages(client, after=middle, limit=2)).cursors == expected[31:33]


async def test_a_page_ends_before_it_is_too_large(log: EventLog, store: str) -> None:
    await filled(log, [sent(number, b"x" * 3_000_000) for number in range(8)])
    async with viewing(store) as client:
        for direction in ("after", "before"):
            assert [ts for ts, _, _ in await _in_pages(client, direction)] == list(range(8))
        assert 0 < len((await _messages(client)).texts) < 8


async def test_a_page_that_begins_later_has_the_receptions_that_were_recorded_meanwhile(
    log: EventLog, store: str
) -> None:
    of = await log.create_experiment("e1")
    writer, listener = await log.register(of, role="messager"), await log.register(of, role="messager")
    async with viewing(store) as client:
        for number in range(3):
            await log.append(writer, [sent(10 * number + 1, b"%d" % number)])
            await log.append(listener, [NewEvent("received", 10 * number + 2, "c", b"%d" % number)])
            while (await client.get("/api/run/e1/head")).json["building"] is not None:
                pass
            assert (await _messages(client)).columns["receptions"] == [1] * (number + 1)


async def test_a_position_excludes_what_was_committed_later(log: EventLog, store: str) -> None:
    of = await filled(log, [sent(1), sent(5)])
    async with viewing(store) as client:
        position = (await client.get("/api/run/e1/head")).json["position"]
        await log.append(await log.register(of, role="tap"), [sent(3)])
        assert [ts for ts, _, _ in (await _messages(client)).cursors] == [1, 3, 5]
        assert [ts for ts, _, _ in (await _messages(client, position=position)).cursors] == [1, 5]


async def test_filters_select_as_those_of_the_command_line(log: EventLog, store: str) -> None:
    events = [
        sent(1, b'{"content": "A Lamp"}', "a*", from_id=5, to_id="5"),
        sent(2, b'{"content": "a lamp"}', "ab", from_id="5", to_id=5),
        sent(3, b'{"content": "other"}', "a*", from_id="\ud800", to_id=7),
        NewEvent("blocked", 4, "ab", b"lamp", 7, 5),
    ]
    await filled(log, events)
    async with viewing(store) as client:
        for query, expected in (
            ({"q": "LAMP"}, [1, 2, 4]),
            ({"agent": ["5"]}, [1, 2, 4]),
            ({"agent": ['"\\ud800"', "7"]}, [3, 4]),
            ({"between": ["5", '"5"']}, [1, 2]),
            ({"channel": "a*"}, [1, 3]),
            ({"channel": ["a*", "ab"]}, [1, 2, 3, 4]),
            ({"channel": "a"}, []),
            ({"kind": "blocked"}, [4]),
            ({"since": 2, "until": 4}, [2, 3]),
            ({"since": "2:1:2", "until": "4:1:4"}, [2, 3]),
            ({"q": "lamp", "channel": "ab", "kind": ["sent", "blocked"]}, [2, 4]),
        ):
            for direction in ("after", "before"):
                found = await _in_pages(client, direction, **query)
                assert [ts for ts, _, _ in found] == expected, (query, direction)


async def test_hostile_names_and_payloads_arrive(log: EventLog, store: str) -> None:
    from messager import channels

    events = [
        sent(number, payload, channels.decode(channel), from_id="<script>", meta={"a": float("nan")})
        for number, (payload, channel) in enumerate(zip(HOSTILE_PAYLOADS, HOSTILE_CHANNELS, strict=True))
    ]
    await log.create_experiment("e1", meta={"nan": float("nan"), "half": "\ud800"})
    of = await log.experiment("e1")
    await log.append(await log.register(of, role="tap"), events)
    async with viewing(store) as client:
        head = (await client.get("/api/run/e1/head")).json
        assert head["meta"] == {"nan": "NaN", "half": "\ud800"} and head["messages"] == len(events)
        chunk = await _messages(client)
        assert len(chunk.texts) == len(events) and len(chunk.header["names"]["channels"]) == len(HOSTILE_CHANNELS)
        for position, name in chunk.header["names"]["channels"]:
            found = await _messages(client, channel=name)
            assert set(found.columns["channel"]) == {position}
        query = urlencode({"since": 0, "until": MINUTE})
        for path in ("activity?by=channel&", "activity?by=from&", "pairs?"):
            assert (await client.get(f"/api/run/e1/{path}{query}")).status == 200


async def test_any_exp_id_can_be_asked_for(log: EventLog, store: str) -> None:
    exp_ids = ["a/head", "../../etc", "x?y#z", "%2e%2e", "日本", "a b", "head", "api/run/e/head"]
    for exp_id in exp_ids:
        await filled(log, [sent(1)], exp_id)
    async with viewing(store) as client:
        listed = (await client.get("/api/experiments")).json["experiments"]
        assert [one["exp_id"] for one in listed] == exp_ids[::-1]
        for exp_id in exp_ids:
            for quoted in (quote(exp_id, safe=""), quote(exp_id)):
                assert (await client.get(f"/api/run/{quoted}/head")).json["exp_id"] == exp_id


async def _society(log: EventLog) -> None:
    events = [
        sent(number * MINUTE // 7, b"x", f"c{number % 20}", from_id=number % 3 or None, to_id=(number + 1) % 3)
        for number in range(700)
    ]
    await close(log, await filled(log, events), force=True)


@pytest.mark.parametrize("by", ["channel", "from"])
async def test_activity_has_every_message_in_its_bucket(log: EventLog, store: str, by: str) -> None:
    await _society(log)
    of = await log.experiment("e1")
    async with viewing(store) as client:
        for since, until, buckets in (
            (MINUTE // 2, 100 * MINUTE, 40),
            (3 * MINUTE + 7, 7 * MINUTE, 100),
            (0, MINUTE, 1),
        ):
            query = urlencode({"since": since, "until": until, "buckets": buckets, "by": by, "agent": [0, 1, 2]}, True)
            found = (await client.get(f"/api/run/e1/activity?{query}")).json
            length = round(found["length"] * 1e9)
            assert buckets / 2.5 <= len(found["starts"]) <= buckets + 1
            assert found["starts"][0] * 1e9 <= since and (found["starts"][-1] + found["length"]) * 1e9 >= until
            start, end = (
                round(found["starts"][0] * 1e9),
                round(found["starts"][0] * 1e9) + length * len(found["starts"]),
            )
            expected = await count(log, of, by, Selection(agents=[0, 1, 2], since=start, until=end))
            assert found["total"] == expected.messages == sum(sum(one["counts"]) for one in found["series"])
            assert len(found["series"]) <= 12
            largest = found["series"][0]
            assert sum(largest["counts"]) == max(row.messages for row in expected)
            if by == "channel" and len(expected) > 12:
                assert found["series"][-1]["label"] == "9 others"
                times = [entry.ts async for entry in log.read(of, channels=largest["label"], since=start, until=end)]
                for at, number in enumerate(largest["counts"]):
                    low = start + at * length
                    assert sum(low <= ts < low + length for ts in times) == number


async def test_pairs_count_as_the_command_line_does(log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await _society(log)
    of = await log.experiment("e1")
    expected = {
        (json.dumps(row.keys[0]), json.dumps(row.keys[1])): row.messages for row in await count(log, of, ("from", "to"))
    }
    async with viewing(store) as client:
        found = (await client.get("/api/run/e1/pairs")).json
        names = {0: "null"} | {position: value for position, _, value in found["names"]["agents"]}
        assert {(names[one["from"]], names[one["to"]]): one["count"] for one in found["pairs"]} == expected
        assert found["others"] == 0
        monkeypatch.setattr("messager_store.view.server.counts.PAIRED", 1)
        found = (await client.get("/api/run/e1/pairs?q=")).json  # the answer to the same question would be the same
        assert found["others"] + sum(one["count"] for one in found["pairs"]) == 700 and found["others"] > 0


async def test_the_kinds_of_a_filter_decide_what_counts(log: EventLog, store: str) -> None:
    of = await filled(log, [sent(1), sent(2), sent(2)._replace(kind="blocked"), sent(2)._replace(kind="failed")])
    await log.append(await log.register(of, role="tap"), [NewEvent("received", 3, "tapped", b"heard")])
    async with viewing(store) as client:
        for kinds, expected in (("", 3), ("&kind=sent", 2), ("&kind=received", 1), ("&kind=blocked", 1)):
            query = f"since=0&until={60 * MINUTE}{kinds}"
            for by in ("channel", "all"):
                found = (await client.get(f"/api/run/e1/activity?by={by}&{query}")).json
                assert found["total"] == expected, (kinds, by)
            pairs = (await client.get(f"/api/run/e1/pairs?{query}")).json["pairs"]
            assert sum(one["count"] for one in pairs) == expected, kinds


async def test_counts_wait_for_the_projection_and_say_so(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    original = questions.projected

    @asynccontextmanager
    async def slow(log: EventLog, of: Any, progress: Any) -> AsyncIterator[Any]:
        progress(3, 10)
        await asyncio.to_thread(goes_on.wait)
        async with original(log, of, progress) as here:
            yield here

    await filled(log, [sent(1)])
    monkeypatch.setattr(questions, "projected", slow)
    monkeypatch.setattr(questions, "PATIENCE_S", 0.01)
    async with viewing(store) as client:
        while (head := (await client.get("/api/run/e1/head")).json)["building"] == [0, 0]:
            pass  # on a busy machine it may not have begun yet
        assert (head["building"], head["messages"]) == ([3, 10], None)
        for path in ("activity?since=0&until=9", "pairs", "problems"):
            answer = await client.get(f"/api/run/e1/{path}")
            assert (answer.status, answer.json) == (202, {"building": [3, 10]})
        goes_on.set()
        while (await client.get("/api/run/e1/pairs")).status == 202:
            pass
        while (head := (await client.get("/api/run/e1/head")).json)["building"] is not None:
            pass  # it asks for the projection by itself
        assert head["messages"] == 1


async def test_a_question_has_what_was_recorded_while_an_earlier_one_was_being_prepared(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_read, goes_on = threading.Event(), threading.Event()
    original = questions.projected

    @asynccontextmanager
    async def slow(*arguments: Any) -> AsyncIterator[Any]:
        async with original(*arguments) as here:
            has_read.set()
            await asyncio.to_thread(goes_on.wait)
            yield here

    monkeypatch.setattr(questions, "projected", slow)
    of = await filled(log, [sent(1)])
    async with questions.Questions(store) as asked:
        assert await asked.progress("e1", wait_s=0) is not None
        await asyncio.to_thread(has_read.wait)
        await log.append(await log.register(of, role="tap"), [sent(2)])

        async def number(log: EventLog, of: Any, here: Any) -> Any:
            return here.rows("SELECT count(*) FROM event")

        answer = asyncio.create_task(asked.ask("e1", number))
        asyncio.get_running_loop().call_later(0.2, goes_on.set)
        assert await answer == [(2,)]


async def test_problems_and_the_verdict_are_those_of_the_store(log: EventLog, store: str) -> None:
    of = await filled(log, [sent(1), NewEvent("gap", 2, None, b"", meta={"reason": "away"})])
    async with viewing(store) as client:
        assert (await client.get("/api/run/e1/problems")).json["counts"] == {"gap": 1}
        verdict = (await client.get("/api/run/e1/verify")).json
        assert verdict["ok"] and verdict["head"] == (await client.get("/api/run/e1/head")).json["head"]
        assert of.status == "open"


@pytest.mark.sqlite
async def test_only_the_files_of_the_page_are_served(log: EventLog, store: str) -> None:
    async with viewing(store) as client:
        page = await client.get("/")
        assert page.headers["content-type"] == ["text/html; charset=utf-8"] and b"<script" in page.body
        for name, kind in (("dom.js", "javascript"), ("page.css", "css"), ("vendor/uPlot.iife.min.js", "javascript")):
            answer = await client.get(f"/page/{name}")
            assert answer.status == 200 and kind in answer.headers["content-type"][0]
            assert answer.body == (app.FOLDER / name).read_bytes()
        answer = await client.get("/page/main.js")
        assert answer.status == 200 and "javascript" in answer.headers["content-type"][0]
        assert answer.body.decode() == script() and "\nimport " not in script()
        for name in (
            *("../head.py", "..%2fhead.py", "%2e%2e/head.py", "%2e%2e%2fhead.py", "..%5chead.py", "vendor/../main.js"),
            *("/etc/passwd", "//etc/passwd", "%2fetc%2fpasswd", "main.js%00", "main.js/", "./main.js", "Main.js", ""),
            *("vendor", "vendor/", "vendor/uPlot.LICENSE", "types.d.ts%00.js", "main.js%20", "..;/head.py"),
        ):
            answer = await client.get(f"/page/{name}")
            assert answer.status == 404 and answer.headers["content-type"] == ["application/json"], name
            assert list(answer.json) == ["error"]


@pytest.mark.sqlite
async def test_wrong_requests_get_one_line(log: EventLog, store: str) -> None:
    await filled(log, [sent(1)], "same-1")
    await filled(log, [sent(1)], "same-2")
    async with viewing(store) as client:
        for path, status, words in (
            ("run/none/messages", 404, "there is no experiment"),
            ("run/same/head", 400, "matches 2 experiments"),
            ("run/same-1/messages?limit=0", 400, "limit"),
            ("run/same-1/messages?limit=x", 400, "limit"),
            ("run/same-1/messages?after=x", 400, "x"),
            ("run/same-1/messages?before=1:2", 400, "1:2"),
            ("run/same-1/messages?since=yesterday", 400, "yesterday"),
            ("run/same-1/messages?agent=x", 400, "not JSON"),
            ("run/same-1/messages?kind=said", 400, "said"),
            ("run/same-1/messages?position=1", 400, "tail position"),
            ("run/same-1/activity", 400, "since and until"),
            ("run/same-1/activity?since=0&until=9&by=x", 400, "channel or from"),
            ("run/same-1/activity?since=0&until=9&buckets=-1", 400, "buckets"),
            ("run/same-1/other", 404, "no such page"),
            ("nothing", 404, "no such page"),
        ):
            answer = await client.get(f"/api/{path}")
            assert answer.status == status, (path, answer.body)
            assert words in answer.json["error"] and "\n" not in answer.json["error"]


@pytest.mark.sqlite
async def test_a_bug_is_told_without_its_traceback(
    log: EventLog, store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(log, [sent(1)])

    async def broken(*arguments: Any, **more: Any) -> None:
        raise RuntimeError("inner working")

    monkeypatch.setattr(app.Reader, "page", broken)
    async with viewing(store) as client:
        answer = await client.get("/api/run/e1/messages")
        assert answer.status == 500 and b"inner working" not in answer.body and list(answer.json) == ["error"]
        assert "inner working" in caplog.text
        assert (await client.get("/api/run/e1/head")).status == 200

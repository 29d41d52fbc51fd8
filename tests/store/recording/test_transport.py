"""A program whose agents talk without a Messager is recorded, audited and replayed through a transport."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from messager import MessagerError, Transport
from messager_store import EventLog, Recorder
from messager_store.lockstep.recording import Recording
from messager_store.log.event import Event
from messager_store.queries.problems import problems
from messager_store.recording.draining import drain, folders_of

NAMES = "alice", "bob", "carol"


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    monkeypatch.setenv("MESSAGER_STORE", store)


async def events(store: str, exp_id: str) -> list[Event]:
    async with EventLog.open(store, create=False) as log:
        return [event async for event in log.read(exp_id)]


async def society(exp_id: str, seed: int, rounds: int = 5) -> list[str]:
    """Agents that say in each round what they have heard, after a random time; return everything that was said."""
    chance, said = random.Random(seed), list[str]()
    async with Transport(exp_id) as transport:

        async def live(name: str) -> None:
            me = transport.endpoint(name)
            for number in range(rounds):
                await asyncio.sleep(chance.random() / 200)
                heard = await me.fetch()
                text = f"{name} {number}: {' '.join(one['text'][:7] for one in heard)}"

                async def publish(text: str = text) -> None:
                    said.append(text)
                    for other in NAMES:
                        if other != name:
                            transport.endpoint(other).put("room", {"text": text}, name, carrier="queue")

                await me.sending(publish, "room", {"text": text}, name, carrier="queue")

        await asyncio.gather(*map(live, NAMES))
    return sorted(said)


async def test_what_agents_say_and_hear_is_recorded_with_its_place_in_the_schedule(recording: None, store: str) -> None:
    async with Transport("e1") as transport:
        alice, bob = transport.endpoint("alice"), transport.endpoint(2)
        assert transport.endpoint("alice") is alice and transport.endpoint("2") is not bob
        alice.sent("room", {"text": "hello"}, "alice", 2, carrier="queue", attempt=1)
        bob.received("room", {"text": "hello"}, "alice", 2, carrier="queue")
        bob.sent("room", {"text": "hello, alice"}, 2, "alice")
        transport.mark("step", number=1)
    found = await events(store, "e1")
    assert [(one.kind, one.from_id, one.to_id, one.arrival, one.carrier) for one in found[:3]] == [
        ("sent", "alice", 2, 0, "queue"),
        ("received", "alice", 2, 1, "queue"),
        ("sent", 2, "alice", 1, None),
    ]
    assert [one.mark for one in found[3:]] == ["step", "messager.closed"]
    assert (found[0].meta, found[4].messager, found[4].arrival) == ({"attempt": 1}, bob.id, 1)


@pytest.mark.databases
async def test_a_message_that_was_refused_or_failed_after_it_was_noted_as_sent_is_no_message(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        alice = transport.endpoint("alice")
        kept, refused, failed = (alice.sent("c", {"n": n}, "alice", "bob", attempt=n) for n in range(3))
        alice.blocked(refused, "guard", "rude")
        alice.failed(failed, "no route", "not_sent")
    found = [event async for event in log.read("e1")]
    assert [(one.kind, one.cause) for one in found] == [
        ("sent", None),
        ("sent", None),
        ("sent", None),
        ("blocked", (1, 2)),
        ("failed", (1, 3)),
    ]
    assert found[3].meta == {"attempt": 1, "interceptor": "guard", "reason": "rude"}
    assert found[4].meta == {"attempt": 2, "outcome": "not_sent", "error": "no route"}
    assert [one.payload for one in Recording.of_events("e1", found).messages] == [kept.payload]


async def test_receptions_that_a_transport_does_not_observe_are_not_said_to_be_missing(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder, observes=["sent"]) as transport:
        transport.endpoint("alice").sent("c", {"n": 1}, "alice", "bob")
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        transport.endpoint("carol").received("d", {"n": 2}, "dave", "carol")
        transport.endpoint("carol").sent("e", {"n": 3}, "carol", "dave")
    found = await problems(log, await log.experiment("e1"))
    assert [one.event.channel for one in found.details if one.event is not None] == ["e"]
    assert "receptions of 1 message were not observed by their transport" in found.notes


async def test_a_message_that_was_not_published_is_not_missed_by_those_who_hear_others_of_its_channel(
    log: EventLog,
) -> None:
    async with Recorder(log, "e1") as one, Recorder(log, "e1") as other:
        async with Transport("e1", one) as here, Transport("e1", other) as there:
            alice, bob = here.endpoint("alice"), there.endpoint("bob")
            for number in range(3):
                alice.sent("c", {"alice": number}, "alice", "bob", carrier="stream")
                bob.received("c", {"alice": number}, "alice", "bob", carrier="stream")
                bob.sent("c", {"bob": number}, "bob", "alice", carrier="stream")
                alice.received("c", {"bob": number}, "bob", "alice", carrier="stream")
    assert not (await problems(log, await log.experiment("e1"))).counts


async def test_a_message_that_waits_in_a_queue_is_not_late(log: EventLog) -> None:
    async with Recorder(log, "e1") as recorder, Transport("e1", recorder) as transport:
        alice, bob = transport.endpoint("alice"), transport.endpoint("bob")
        for channel, carrier in (("queue", "queue"), ("call", "call")):
            sent = alice.sent(channel, {"n": 1}, "alice", "bob", carrier=carrier)  # type: ignore[arg-type]
            bob.received(channel, {"n": 1}, "alice", "bob", carrier=carrier, ts=sent.ts + 3 * 10**9)  # type: ignore[arg-type]
    found = await problems(log, await log.experiment("e1"))
    assert [one.event.channel for one in found.details if one.event is not None] == ["call"]


@pytest.mark.parametrize("durability", ["buffered", "strict"])
def test_programs_without_an_event_loop_send_from_any_thread(
    recording: None, store: str, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESSAGER_DURABILITY", durability)
    with Transport("e1") as transport:
        alice = transport.endpoint("alice")
        assert alice.sending_sync(lambda: "its id", "c", {"n": 1}, "alice", "bob") == "its id"
        with pytest.raises(ZeroDivisionError):
            alice.sending_sync(lambda: 1 / 0, "c", {"n": 2}, "alice", "bob")

        async def in_a_loop() -> str:
            async def publish() -> str:
                return "its id"

            return await alice.sending(publish, "c", {"n": 3}, "alice", "bob")

        assert asyncio.run(in_a_loop()) == "its id"
    found = asyncio.run(events(store, "e1"))
    strict = ["sent", "sent", "failed", "sent"]
    assert [one.kind for one in found] == (strict if durability == "strict" else ["sent", "failed", "sent"])


async def test_a_transport_in_the_event_loop_of_its_hooks_says_what_to_await() -> None:
    async with Transport("e1") as transport:
        with pytest.raises(MessagerError, match="await `sending`"):
            transport.endpoint("alice").sending_sync(lambda: None, "c", {})


async def test_agents_of_a_transport_follow_a_recorded_schedule(
    recording: None, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = await society("e1", 1)
    assert await society("free", 2) != recorded
    monkeypatch.setenv("MESSAGER_REPLAY", "e1")
    for seed in range(3, 8):
        assert await society(f"again-{seed}", seed) == recorded
    assert [one.carrier for one in await events(store, "again-7") if one.kind == "received"] == ["queue"] * 30


PROGRAM = """
import os, sys
from messager.transport import of_process

of_process().endpoint("parent").sent("c", {"n": 1}, "parent", "child")
if (pid := os.fork()) == 0:
    of_process().endpoint("child").sent("c", {"n": 2}, "child", "parent")
    sys.exit()
os.waitpid(pid, 0)
of_process().endpoint("parent").sent("c", {"n": 3}, "parent", "child")
"""


@pytest.mark.parametrize(("given", "exp_id"), [({"MESSAGER_EXP": "e1"}, "e1"), ({"MESSAGER_RUN": "run-1"}, "run-1")])
async def test_the_transport_of_a_process_is_made_when_needed_and_ends_with_the_process(
    store: str, tmp_path: Path, given: dict[str, str], exp_id: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {"MESSAGER_STORE": store, **given}
    process = await asyncio.create_subprocess_exec(sys.executable, program, env={**os.environ, **environment})
    assert await process.wait() == 0
    async with EventLog.open(store, create=False) as log:
        for folder in await folders_of(
            log
        ):  # a process that is forked in the middle of a commit finds the store locked
            _ = [done async for done in drain(log, folder)]
    found = await events(store, exp_id)
    assert sorted(one.payload for one in found) == [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']
    async with EventLog.open(store, create=False) as log:
        rows = await log.recorders(await log.experiment(exp_id))
    assert [row.state for row in rows] == ["ended", "ended"]


NAMED = "from messager.transport import of_process; print(of_process('mine').exp_id, of_process('another').exp_id)"


@pytest.mark.parametrize(("given", "exp_id"), [({"MESSAGER_EXP": "e1"}, "e1"), ({"MESSAGER_RUN": "run-1"}, "mine")])
def test_an_adapter_may_name_the_experiment_of_the_process_unless_its_user_has(
    given: dict[str, str], exp_id: str
) -> None:
    done = subprocess.run([sys.executable, "-c", NAMED], env={**os.environ, **given}, capture_output=True, text=True)
    assert done.stdout.split() == [exp_id, exp_id], done.stderr

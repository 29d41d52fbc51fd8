"""Faults with MQTT: those of `network`, client identifiers used twice, retransmissions, dropped messages."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Set
from functools import partial

from messager.testing import mqtt_server
from messager_store import EventLog
from messager_store.projection.tables import table
from messager_store.recording.closing import close

from . import network
from .carriers import MQTT, MqttLine, dropping
from .evidence import count_disorder, events, findings, number_of
from .killing import kills
from .network import BETWEEN, EXP
from .process import Worker
from .row import Row, Run, fault
from .witness import Witness

MESSAGES = 300
DROPPED = 40
"""Messages of a sender, and the number of them that do not reach a listener."""
AGAIN = 30
"""Messages per try of a publisher that retransmits unacknowledged messages."""


@fault("mqtt-sigkill-strict", "MQTT: SIGKILL of a recording process, strict", short=1, long=40)
async def strict(run: Run, row: Row) -> None:
    """Every message that was published is in the log."""
    await kills(run, row, durability="strict", blocked=False, carrier=MQTT)


@fault("mqtt-killed", "MQTT: kill -9 of the broker, and a restart", short=1, long=40)
async def broker_killed(run: Run, row: Row) -> None:
    """Failed sends are logged as failed, and messages that a listener missed lie in its gaps."""
    await network.broker_killed(run, row, MQTT)


@fault("mqtt-cut", "MQTT: connections cut", short=1, long=60)
async def connections_cut(run: Run, row: Row) -> None:
    """No message is sent twice, outcomes are correct, and messages that a listener missed lie in its gaps."""
    await network.through_proxies(run, row, network.cut, MQTT)


@fault("mqtt-silent", "MQTT: a network that falls silent", short=1, long=20)
async def network_silent(run: Run, row: Row) -> None:
    """The same, and the silence is detected."""
    await network.through_proxies(run, row, network.silence, MQTT)


@fault("mqtt-half", "MQTT: writes cut in the middle", short=1, long=40)
async def writes_cut(run: Run, row: Row) -> None:
    """The same."""
    await network.through_proxies(run, row, network.cut_a_write, MQTT, sender_only=True)


@fault("mqtt-answer", "MQTT: acknowledgements (PUBACK) cut off", short=1, long=40)
async def answers_cut(run: Run, row: Row) -> None:
    """The same: the message may have been published, so it is not sent again, not even as a retransmission (DUP)."""
    await network.through_proxies(run, row, network.cut_an_answer, MQTT, sender_only=True)


# amqtt keeps both clients with the same identifier, against the standard (MQTT-3.1.4-2).
@fault("mqtt-taken-over", "MQTT: another client takes the same name", short=1, long=40, seconds=600, needs="mosquitto")
async def taken_over(run: Run, row: Row) -> None:
    """The same as for cut connections: the broker closes the connection of the former client."""
    with mqtt_server() as server:
        urls = [MQTT.url(server.port, f"?client_id={name}") for name in ("sender", "tap")]
        for tries in network.bursts(run.tries):
            folder = run.place(f"burst-{row.tried}")
            async with Witness.watching(server.port, MQTT) as witness:
                sender, tap = await network.started(folder, MQTT, *urls)
                for _ in range(tries):
                    await asyncio.sleep(run.dice.uniform(0, BETWEEN))
                    async with MqttLine.to(server.port, run.dice.choice(("sender", "tap-1"))):
                        await asyncio.sleep(run.dice.uniform(0, BETWEEN))
                    row.tried += 1
                    await sender.heard("sent", sender.last("sent") + 20)
                await network.end(server.port, MQTT, sender, tap)
                await witness.caught_up()
            await network.judge(row, folder / "log.db", sender, witness.saw)
            shutil.rmtree(folder)


@fault(
    "mqtt-sent-again", "MQTT: a publisher sends again what was not acknowledged (DUP)", short=1, long=10, seconds=600
)
async def sent_again(run: Run, row: Row) -> None:
    """A broker delivers a retransmission as another message, and the log has each as often as it was delivered."""
    with mqtt_server() as server:
        for number in range(run.tries):
            folder = run.place(f"again-{number}")
            store = folder / "log.db"
            async with Witness.watching(server.port, MQTT) as witness:
                tap = await Worker.start("tap", folder, store=str(store), exp=EXP, broker=server.url)
                await tap.heard("ready")
                for n in range(1, AGAIN + 1):
                    payload = b'{"n": %d}' % n
                    async with MqttLine.to(server.port, "publisher") as line:
                        line.offer(b"c", payload)
                    async with MqttLine.to(server.port, "publisher") as line:
                        await line.publish(b"c", payload, again=True)
                await network.caught_up(server.port, MQTT, tap)
                await witness.caught_up()
                await tap.stop()
            row.tried += 1
            row.offered += len(witness.saw)
            seen = Counter(witness.saw)
            kept = Counter(entry.n for entry in events(store, EXP) if entry.n is not None)
            row.lost += (seen - kept).total()
            row.doubled += (kept - seen).total()
            row.add("on the wire twice", sum(1 for times in seen.values() if times > 1))
            for problem in await findings(store):
                row.problem(f"{folder.name}: {problem}")
            shutil.rmtree(folder)


@fault("mqtt-dropped", "MQTT: the broker drops messages to a listener", short=1, long=10, seconds=600)
async def dropped(run: Run, row: Row) -> None:
    """The broker reports no loss, so there is no gap. The deliveries, computed at the end, show the lost messages."""
    with mqtt_server() as server:
        for number in range(run.tries):
            folder = run.place(f"dropped-{number}")
            store = folder / "log.db"
            chosen = set(run.dice.sample(range(1, MESSAGES + 1), DROPPED))
            async with dropping(server.port, partial(_is_one_of, chosen)) as port:
                sender, tap = await network.started(folder, MQTT, server.url, MQTT.url(port))
                await sender.heard("sent", MESSAGES)
                await network.end(server.port, MQTT, sender, tap)
            async with EventLog.open(str(store)) as log:
                of = await log.experiment(EXP)
                await close(log, of)
                rows = (await table(log, of)).to_pylist()
            arrived = {number_of(made["payload"]) for made in rows if made["copies"]}
            row.tried += 1
            logged = events(store, EXP)
            count_disorder(row, logged, "received")
            sent = {entry.n for entry in logged if entry.kind == "sent" and entry.n is not None}
            row.offered += len(sent)
            row.lost += len(set(sender.said["sent"]) - sent)
            row.unnoticed += len(chosen & arrived) + len(sent - chosen - arrived)
            row.add("dropped, as the deliveries say", len(sent - arrived))
            for problem in await findings(store):
                row.problem(f"{folder.name}: {problem}")
            shutil.rmtree(folder)


def _is_one_of(numbers: Set[int], payload: bytes) -> bool:
    return number_of(payload) in numbers

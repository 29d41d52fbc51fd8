"""The broker of CONTRIBUTING.md defines only what a broker must, and carries, records and replays messages."""

from __future__ import annotations

import re
from typing import Any

from messager import Broker, Messager
from messager_store import EventLog, Recorder, Replay
from tests.support import ROOT

CODE = re.search(r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)


async def test_a_broker_needs_no_more_than_contributing_shows(log: EventLog) -> None:
    assert CODE is not None and CODE[1].count("\n") <= 60
    names: dict[str, Any] = {}
    exec(CODE[1], names)
    broker: Broker = names["LocalBroker"]()
    async with Recorder(log, "e1") as recorder:
        messager = Messager(broker, "e1")
        messager.add_log_hook(recorder)
        await messager.init()
        await messager.subscribe_and_start_listening(["e1:*"])
        await messager.send_message("e1:hall", {"content": "hello"})
        [received] = await _fetched(messager)
        await messager.close()
    assert received["data"] == b'{"content": "hello"}'

    listener = Messager(broker, "e2")
    await listener.init()
    await listener.subscribe_and_start_listening(["e1:*"])
    assert (await Replay(log, "e1", broker).run()).published == 1
    [repeated] = await _fetched(listener)
    assert repeated["data"] == received["data"]
    await listener.close()


async def _fetched(messager: Messager) -> list[dict[str, Any]]:
    while not (messages := await messager.fetch_messages()):
        pass
    return messages

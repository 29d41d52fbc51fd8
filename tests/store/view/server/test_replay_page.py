"""The replay bar of a served page, in a browser and over real Redis."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page

from messager import RedisBroker
from messager.testing import RedisServer
from messager_store import EventLog, NewEvent, Replay
from messager_store.recording.closing import close
from messager_store.replay import ControlSocket
from tests.store.view.pages import drawn, findings, go, leave, ready
from tests.store.view.server.client import viewing
from tests.store.view.server.test_replaying import Subscriber
from tests.support import until
from tests.support.browser import PageOpener
from tests.support.logs import sent

SECOND = 1_000_000_000


def chat(exp_id: str = "e1") -> list[NewEvent]:
    return [
        sent(
            at * SECOND,
            json.dumps({"content": f"message {at}", "t": f"{exp_id} {at}"}).encode(),
            f"exps:{exp_id}:agents:{at % 2}:chat",
            from_id=at % 2,
        )
        for at in range(20)
    ]


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A store with the experiments e1 and e2, which differ in their times and in one message."""
    path = tmp_path / "runs.db"
    async with EventLog.open(str(path)) as log:
        other = chat("e2")
        other[7] = other[7]._replace(payload=b'{"content": "another message", "t": ""}')
        for exp_id, events in (("e1", chat()), ("e2", other)):
            writer = await log.register(of := await log.create_experiment(exp_id), role="tap")
            await log.append(writer, events)
            await log.touch(writer, ended_at=1)
            await close(log, of)
    return path


def texts(heard: Subscriber) -> list[str]:
    return [json.loads(text)["content"] for text in heard.texts]


def button(page: Page, name: str) -> Locator:
    return page.get_by_label("replay", exact=True).get_by_role("button", name=name)


async def test_the_page_starts_a_replay_steps_it_seeks_plays_it_and_shows_its_end(
    open_page: PageOpener, store: Path, redis: RedisServer
) -> None:
    async with (
        Subscriber().listening(redis.url, "exps:e1*") as heard,
        viewing(store, "?exp=e1", redis.url, allow=True) as client,
    ):
        page = await ready(await open_page(client.url))
        bar = page.get_by_label("replay", exact=True)
        await page.get_by_text(f"A replay publishes to {redis.url}; nothing else leaves your machine.").wait_for()
        await button(page, "Replay to redis://").click()
        await page.get_by_text("exps:e1-replay:agents:0:chat").wait_for()
        assert f"This publishes 20 messages to {redis.url} on 2 channels" in " ".join((await bar.inner_text()).split())
        assert await findings(page, ".replay") == []
        await page.keyboard.press("Enter")  # in the field with the proposed name
        await button(page, "Step").wait_for()
        assert heard.messages == []
        await page.wait_for_function("document.activeElement.textContent === '▶ Play'")
        await button(page, "Step").click()
        await bar.get_by_text("1 of 20 messages published").wait_for()
        await until(
            lambda: heard.messages == [("exps:e1-replay:agents:0:chat", '{"content": "message 0", "t": "e1 0"}')]
        )
        await page.wait_for_url("**#*at=0%3A1%3A1*")  # the message is selected
        await bar.get_by_label("agent of the next message").select_option("1")
        await button(page, "Next of").click()
        await until(lambda: texts(heard) == ["message 0", "message 1"])
        await page.wait_for_url(f"**#*at={SECOND}%3A1%3A2*")
        await go(page, f"at={15 * SECOND}:1:16")
        await bar.get_by_label("with state").check()
        await button(page, "Seek to selected message").click()
        await bar.get_by_text("at 15 s").wait_for()
        await until(lambda: texts(heard)[2:] == ["message 13", "message 14"])
        await drawn(page)
        assert f"at={15 * SECOND}%3A1%3A16" in page.url, "it stays selected"
        assert await findings(page, ".replay") == []
        await bar.get_by_label("speed of the replay").select_option("max")
        await button(page, "▶ Play").click()
        await bar.get_by_text("published 9 messages in").wait_for()
        await until(lambda: texts(heard)[4:] == [f"message {number}" for number in range(15, 20)])
        await button(page, "Replay to redis://").wait_for()
        await leave(page)


async def test_the_recorded_channels_are_only_used_after_a_warning(
    open_page: PageOpener, store: Path, redis: RedisServer
) -> None:
    async with (
        Subscriber().listening(redis.url, "exps:e1*") as heard,
        viewing(store, "?exp=e1", redis.url, allow=True) as client,
    ):
        page = await ready(await open_page(client.url))
        await button(page, "Replay to redis://").click()
        await page.get_by_text("exps:e1-replay:agents:0:chat").wait_for()
        name = page.get_by_label("publish on the channels of experiment")
        await name.fill("")
        await name.press("Enter")
        await page.get_by_text("a system that is running on this broker receives the messages").wait_for()
        assert await button(page, "Step").count() == 0, "the warning is to be read first"
        await name.press("Escape")
        await page.get_by_text("a system that is running").wait_for(state="hidden")
        await page.wait_for_function("document.activeElement.textContent.startsWith('Replay to redis://')")
        assert heard.messages == []
        await leave(page)


async def test_without_permission_the_page_only_shows_a_replay_of_another_program(
    open_page: PageOpener, store: Path, redis: RedisServer, tmp_path: Path
) -> None:
    path = tmp_path / "control"
    async with viewing(store, "?exp=e1", redis.url) as client:
        page = await ready(await open_page(client.url))
        assert await page.get_by_label("replay", exact=True).is_hidden()
        await leave(page)
    broker = RedisBroker.from_url(redis.url)
    async with EventLog.open(str(store)) as log, viewing(store, "?exp=e1", "", control=str(path)) as client:
        replay = Replay(log, "e1", broker)
        replay.control.pause()
        page = await ready(await open_page(client.url))
        waiting = page.get_by_text(f"Waiting for a replay at {path}.")
        await waiting.wait_for()
        await page.get_by_text("Nothing on this page leaves your machine.").wait_for()
        async with ControlSocket(replay.control, str(path)):
            running = asyncio.create_task(replay.run())
            await page.get_by_text("0 of 20 messages published").wait_for()
            assert await replay.control.step(3) == 3
            await page.get_by_text("3 of 20 messages published").wait_for()
            assert await waiting.is_hidden()
            assert await page.get_by_label("replay", exact=True).get_by_role("button").count() == 0
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await page.get_by_text("The replay has ended.").wait_for()
        await leave(page)
    await broker.close()


async def test_two_experiments_of_the_server_are_compared(open_page: PageOpener, store: Path) -> None:
    async with viewing(store) as client:
        page = await open_page(client.url)
        for exp_id in ("e1", "e2"):
            await page.get_by_label(f"compare {exp_id}").check()
        await page.get_by_role("button", name="Compare two").click()
        await ready(page)
        await page.get_by_role("button", name="20 changed").wait_for()
        await page.get_by_role("link", name="compare without t").click()
        await page.get_by_text("19 equal").wait_for()
        row = page.locator("[aria-current=true]")
        await row.wait_for()
        assert "message 7" in await row.inner_text() and "another message" in await row.inner_text()
        await page.get_by_role("link", name="open").first.click()
        await page.get_by_role("tab", name="Read").wait_for()
        await leave(page)

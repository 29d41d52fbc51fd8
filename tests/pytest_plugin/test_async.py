"""`await replay.play(...)` in async tests of pytest-asyncio and anyio; brokers other than the one in memory."""

from __future__ import annotations

import pytest

from messager.testing import MqttServer, RedisServer

from .shop import AGENTS, TALK, TEST, Shop, changed, text_of

ASYNC = """
@pytest.mark.{}
@pytest.mark.recording("shop.jsonl", patience=5)
async def test_the_seller_answers_as_it_did(replay):
    report = await replay.play(3, seller)
    assert report.equal
"""
STRICT = ("-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function", "-W", "error")


@pytest.fixture
def recorded(shop: Shop) -> Shop:
    shop.record(TALK)
    return shop


@pytest.mark.parametrize("plugin", ["asyncio", "anyio"])
def test_an_async_test_awaits_the_replay(plugin: str, recorded: Shop) -> None:
    pytest.importorskip({"asyncio": "pytest_asyncio"}.get(plugin, plugin))
    options = STRICT if plugin == "asyncio" else ("-W", "error")
    backend = "\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    for agents, outcome in ((AGENTS, {"passed": 1}), (changed('"pear": 3', '"pear": 4'), {"failed": 1})):
        recorded.write(backend + ASYNC.format(plugin), agents)
        result = recorded.run(*options, plugins=("messager", plugin))
        result.assert_outcomes(**outcome)
    assert "agent 3 differs from the recording after 1 of 2 messages" in text_of(result)


def test_an_async_test_makes_and_accepts_recordings(shop: Shop) -> None:
    pytest.importorskip("pytest_asyncio")
    both = ASYNC.format("asyncio").replace("3, seller", "{3: seller, 7: buyer}").replace("assert report.equal", "")
    shop.write(both)
    shop.run("--recording=new", *STRICT, plugins=("messager", "asyncio")).assert_outcomes(passed=1)
    assert shop.contents() == ["apple", "apple: 2", "pear", "pear: 3"]
    shop.write(both, changed('"pear": 3', '"pear": 4'))
    shop.run("--recording=accept", *STRICT, plugins=("messager", "asyncio")).assert_outcomes(passed=1)
    assert shop.contents() == ["apple", "apple: 2", "pear", "pear: 4"]


def test_a_message_too_many_is_told_in_real_time_as_in_virtual_time(recorded: Shop) -> None:
    pytest.importorskip("pytest_asyncio")
    sent = 'await messager.send_message(messager.get_agent_chat_channel(asked["from"]), answer, 3, asked["from"])\n'
    twice = changed(sent, f"{sent}            if asked['content'] == 'apple':\n                {sent}")
    twice = changed("asyncio.sleep(0.01)", "asyncio.sleep(0.05)", twice)
    recorded.write(ASYNC.format("asyncio").replace("patience=5", "patience=0.2"), twice)
    in_real_time = text_of(recorded.run(*STRICT, plugins=("messager", "asyncio")))
    recorded.write(agents=twice)
    for shown in (in_real_time, text_of(recorded.run())):
        assert "agent 3 said a message that is not in the recording, besides 2 of 2 that are" in shown
        assert "2 expected: 2 matched, 0 different, 0 missing, 1 unexpected" in shown


def test_a_call_without_await_in_an_async_test_says_what_would_be_right(recorded: Shop) -> None:
    pytest.importorskip("pytest_asyncio")
    recorded.write(ASYNC.format("asyncio").replace("await replay.play(", "replay("))
    result = recorded.run(*STRICT, plugins=("messager", "asyncio"))
    result.assert_outcomes(failed=1)
    assert "in an async test, use `await replay.play(...)`" in text_of(result)


def test_an_async_test_that_forgets_to_await_fails(recorded: Shop) -> None:
    pytest.importorskip("pytest_asyncio")
    recorded.write(
        ASYNC.format("asyncio").replace("await replay.play(", "replay.play(").replace("assert report.equal", "")
    )
    result = recorded.run(*STRICT[:-2], plugins=("messager", "asyncio"))
    result.assert_outcomes(failed=1)


def test_plain_tests_leave_the_event_loop_of_the_thread_alone(recorded: Shop) -> None:
    around = """
import asyncio

@pytest.fixture(autouse=True)
def a_loop():
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    assert asyncio.get_event_loop_policy().get_event_loop() is loop
    asyncio.set_event_loop(None)
    loop.close()
"""
    recorded.write(around + TEST)
    recorded.run().assert_outcomes(passed=1)


@pytest.mark.parametrize("by", ["option", "mark"])
def test_a_replay_on_a_real_broker_stays_in_channels_of_its_own(by: str, recorded: Shop, redis: RedisServer) -> None:
    told = changed('answer = {"from"', "assert not messager.exp_id.startswith('shop')\n            answer = {\"from\"")
    url = redis.url
    recorded.write(TEST if by == "option" else TEST.replace(")\ndef", f", broker={url!r})\ndef"), told)
    recorded.run(*(("--recording-broker", url) if by == "option" else ())).assert_outcomes(passed=1)
    recorded.write(agents=changed('"pear": 3', '"pear": 4'))
    shown = text_of(recorded.run("--recording-broker", url))
    assert "pear: 4" in shown and "channel    exps:shop:agents:7:agent-chat\n" in shown


def test_agents_of_mqtt_are_live_on_a_broker_of_mqtt(recorded: Shop, mqtt: MqttServer) -> None:
    pytest.importorskip("aiomqtt")
    recorded.record([{**line, "channel": str(line["channel"]).replace(":", "/")} for line in TALK])
    agents = changed('get_subtopic_channel(3, "*")', 'get_subtopic_channel(3, "#")')
    agents = changed('message["data"]', "message.payload", agents)
    recorded.write(agents=agents)
    recorded.run("--recording-broker", mqtt.url).assert_outcomes(passed=1)


def test_a_broker_that_cannot_be_reached_is_an_error_in_a_line(recorded: Shop) -> None:
    recorded.write()
    result = recorded.run("--recording-broker", "redis://127.0.0.1:1")
    result.assert_outcomes(failed=1)
    assert "cannot be replayed" in text_of(result) and "127.0.0.1:1" in text_of(result)
    result = recorded.run("--recording-broker", "nonsense://x")
    assert "unknown scheme of a broker" in text_of(result)

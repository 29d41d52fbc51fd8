"""Inside Ray, driver, tasks and actors are recorded into one experiment.

`make test` starts Ray once, for the example. Other tests that start it are nightly.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pickle
import socket
import sys
import time
import types
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from messager import MemoryBroker, Messager, RedisConfig, mqtt
from messager.brokers import MqttBroker, open_broker
from messager.record import MessageRecord
from messager.testing import MqttServer, RedisServer
from messager_store import EventLog, Recorder, StoreError
from messager_store.db.one_host import ELSEWHERE
from messager_store.formats.gather import GatheredExperiment, gather
from messager_store.ray import HOST, WORKER_SETUP, runtime_env, set_up_worker
from tests.store.ray_runs import once, run
from tests.support import ROOT, Listed, until
from tests.support.agentsociety_1_0 import REQUIREMENT
from tests.support.outages import everything_drained
from tests.support.wheels import wheel

pytestmark = pytest.mark.timeout(300)
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not there: run `make ray`")


@pytest.fixture(scope="module")
def society10(mqtt: MqttServer, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Any:
    wheel(REQUIREMENT)
    return once("ray_agentsociety_program", tmp_path_factory, worker_id, str(mqtt.port))


async def sent(log: EventLog, exp_id: str) -> list[int]:
    return sorted([json.loads(event.payload)["n"] async for event in log.read(exp_id, kinds=["sent", "blocked"])])


@needs_ray
@pytest.mark.nightly
async def test_driver_groups_and_tasks_are_recorders_of_one_experiment(ran: Any) -> None:
    seen = ran.seen["society"]
    async with EventLog.open(ran.store, create=False) as log:
        rows = await log.recorders(await log.experiment("society"))
        assert await sent(log, "society") == [0, 0, 1, 1, 2, 2, 100]
    pids = {seen["driver"], seen["task"], *(group["pid"] for group in seen["groups"])}
    assert len(pids) == 4 and {row.pid for row in rows} == pids
    assert {row.state for row in rows} == {"ended"}


@needs_ray
@pytest.mark.nightly
async def test_the_store_that_workers_are_told_of_is_an_absolute_path(ran: Any) -> None:
    assert {group["store"] for group in ran.seen["society"]["groups"]} == {ran.store}


@needs_ray
@pytest.mark.nightly
async def test_an_interceptor_that_is_an_actor_is_asked_only_where_both_ids_are_given(ran: Any) -> None:
    seen = ran.seen["interceptor"]
    assert seen["asked"] == [[0, 0, '{"n": 0}'], [1, 2, '{"n": 1}']]
    assert seen["sent"] == [True, False, True, True, True]
    assert seen["travels"] == [True, False]
    async with EventLog.open(ran.store, create=False) as log:
        blocked = [event async for event in log.read("asked", kinds=["blocked"])]
        assert [(event.from_id, event.to_id, event.payload) for event in blocked] == [(1, 2, b'{"n": 1}')]
        assert await sent(log, "travels") == [0]


@needs_ray
@pytest.mark.nightly
async def test_an_actor_that_never_closes_its_messager_has_everything_in_the_log(ran: Any) -> None:
    async with EventLog.open(ran.store, create=False) as log:
        await everything_drained(log, Path(log.database.dialect.spool_folders[0]))
        assert await sent(log, "unclosed") == [0, 1, 2]


@needs_ray
@pytest.mark.nightly
async def test_a_messager_over_mqtt_that_is_an_actor_sends_and_fetches(ran: Any) -> None:
    topic = "exps/mqtt/agents/a/agent-chat"
    assert ran.seen["mqtt"] == {
        "fetched": [[topic, '{"n": 1}', 1, False]],
        "log": [topic],
        "cleared": [],
        "connected": False,
    }
    async with EventLog.open(ran.store, create=False) as log:
        assert [event.channel async for event in log.read("mqtt", kinds=["sent"])] == ["ping", topic]


@needs_ray
@pytest.mark.nightly
async def test_agentsociety_1_0s_own_groups_agents_driver_and_interceptor_talk_through_actors_of_it(
    society10: Any,
) -> None:
    one, other = society10.seen["agents"]
    of = "exps/society10"
    chats = [f"{of}/agents/{one}/agent-chat", f"{of}/agents/{other}/agent-chat"]
    payback = f"{of}/user_payback"
    step = society10.seen["step"]
    # The agents sent, each: a greeting and a payback when interviewed, a payback
    # for the survey, and a greeting in the step. Their pings are not listed.
    assert sorted(entry["topic"] for entry in step) == sorted([*chats, *chats, *[payback] * 4])
    assert {(entry["from_uuid"], entry["to_uuid"]) for entry in step} == {(one, other), (other, one), (None, None)}
    assert society10.seen["news"] == [f"{of}/news", json.dumps({"from": other}), 1]
    assert society10.seen["log"] == [
        f"{of}/agents/{one}/user-chat",
        f"{of}/agents/{other}/user-chat",
        f"{of}/agents/{one}/user-survey",
        f"{of}/agents/{other}/user-survey",
        f"{of}/news",
        f"{of}/news",
    ]
    async with EventLog.open(society10.store, create=False) as log:
        await everything_drained(log, Path(log.database.dialect.spool_folders[0]))
        events = [event async for event in log.read("society10")]
        assert len(await log.recorders(await log.experiment("society10"))) == 2
    assert sorted(
        event.channel for event in events if event.kind == "sent" and event.from_id in (one, other)
    ) == sorted([*chats, *chats, f"{of}/news"])
    assert [event.channel for event in events if event.kind == "sent"].count("ping") == 2
    assert [(event.channel, event.from_id) for event in events if event.kind == "blocked"] == [(f"{of}/news", one)]


class Derived(mqtt.Messager):
    """Subclass as Ray derives it for an actor."""


def test_an_object_on_which_init_never_ran_is_pickled_as_any_other() -> None:
    made = Derived.__new__(Derived)
    made.__dict__["kept"] = 1
    assert vars(pickle.loads(pickle.dumps(made))) == {"kept": 1}


@needs_ray
@pytest.mark.nightly
async def test_a_worker_does_not_write_into_a_sqlite_file_of_another_host(ran: Any) -> None:
    assert ran.seen["elsewhere"]["store"] is None
    async with EventLog.open(ran.store, create=False) as log:
        assert "elsewhere" not in {of.exp_id for of in await log.experiments()}


async def is_shown(folder: Path, output: str) -> None:
    """Fail unless the example has shown its experiment."""
    recorders = [line.split() for line in output.splitlines() if " messager  ended " in line]
    assert [line[0] for line in recorders] == ["1", "2", "3", "4"] and len({line[5] for line in recorders}) == 4
    assert "96 (40 sent, 40 received, 5 blocked, 11 mark)" in output
    assert "40 messages were sent, 40 were received again" in output


async def can_be_gathered(folder: Path, output: str) -> None:
    """Fail unless the example has recorded into a file of its host."""
    assert "messager gather" in output
    async with EventLog.open(str(folder / "all.db")) as log:
        [part] = [each async for each in gather(log, [str(folder / f"runs-{socket.gethostname()}.db")])]
        assert isinstance(part, GatheredExperiment) and [len(each.recorders) for each in part.parts] == [4]
        assert len([event async for event in log.read("town", kinds=["sent"])]) == 40


@needs_ray
@pytest.mark.parametrize(
    ("store", "holds"),
    [
        pytest.param("runs.db", is_shown, id="one file"),  # the only start of Ray in `make test`
        pytest.param("runs-{host}.db", can_be_gathered, id="of each host", marks=pytest.mark.nightly),
    ],
)
async def test_the_example_records_one_experiment_with_a_recorder_for_each(
    store: str, holds: Callable[[Path, str], Awaitable[None]], tmp_path: Path
) -> None:
    done = run(tmp_path, str(ROOT / "examples" / "ray_society.py"), "--exp", "town", "--store", store)
    assert done.returncode == 0, done.stderr
    await holds(tmp_path, done.stdout)


def test_the_settings_of_this_process_go_to_the_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESSAGER_STORE", "sqlite:///runs.db")
    monkeypatch.setenv("MESSAGER_SPOOL", "spool")
    monkeypatch.setenv("MESSAGER_DURABILITY", "strict")
    env = runtime_env(also={"env_vars": {"MINE": "1"}, "pip": ["x"]})
    assert env == {
        "pip": ["x"],
        "env_vars": {
            "MINE": "1",
            "MESSAGER_STORE": str(tmp_path / "runs.db"),
            HOST: socket.gethostname(),
            "MESSAGER_SPOOL": str(tmp_path / "spool"),
            "MESSAGER_DURABILITY": "strict",
        },
        "worker_process_setup_hook": WORKER_SETUP,
    }
    given = runtime_env("other.db", durability="buffered", spool=tmp_path)["env_vars"]
    assert (given["MESSAGER_STORE"], given["MESSAGER_DURABILITY"]) == (str(tmp_path / "other.db"), "buffered")


def test_the_hook_that_workers_are_told_to_call_is_there() -> None:
    module, _, name = WORKER_SETUP.rpartition(".")
    assert getattr(importlib.import_module(module), name) is set_up_worker


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "no store to record into. Name one, or set MESSAGER_STORE."),
        ({"store": ":memory:"}, "visible to one process only"),
        ({"store": "sqlite://"}, "visible to one process only"),
        ({"store": "mongodb://u:hush@h"}, "no store of scheme 'mongodb'"),
        ({"store": "a.db", "also": {"worker_process_setup_hook": "theirs"}}, "Ray runs only one"),
    ],
)
def test_what_cannot_be_told_to_workers_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(StoreError, match=reason) as caught:
        runtime_env(**given)
    assert "hush" not in str(caught.value)


def test_a_sqlite_file_is_refused_where_ray_runs_on_other_hosts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"NodeManagerHostname": name, "Alive": True} for name in (socket.gethostname(), "far-away")]
    nodes.append({"NodeManagerHostname": "dead", "Alive": False})
    cluster: Any = types.ModuleType("ray")
    cluster.is_initialized, cluster.nodes = lambda: True, lambda: nodes
    monkeypatch.setitem(sys.modules, "ray", cluster)
    with pytest.raises(StoreError, match=r"also runs on far-away: .*SQLite's locks .*PostgreSQL"):
        runtime_env("runs.db")
    nodes.pop(1)
    assert runtime_env("runs.db")["worker_process_setup_hook"]


async def test_each_host_records_into_a_file_of_its_own_if_the_name_has_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [{"NodeManagerHostname": name, "Alive": True} for name in ("host-a", "host-b")]
    cluster: Any = types.ModuleType("ray")
    cluster.is_initialized, cluster.nodes = lambda: True, lambda: nodes
    monkeypatch.setitem(sys.modules, "ray", cluster)
    told = runtime_env("sqlite:///runs-{host}.db")["env_vars"]
    assert told == {"MESSAGER_STORE": str(tmp_path / "runs-{host}.db")}
    async with AsyncExitStack() as stack:
        for node in nodes:
            monkeypatch.setattr(socket, "gethostname", lambda name=node["NodeManagerHostname"]: name)
            log = await stack.enter_async_context(EventLog.open(told["MESSAGER_STORE"]))
            recorder = await stack.enter_async_context(Recorder(log, "town"))
            recorder.after(MessageRecord("sent", time.time_ns(), "c", b"{}"))
    parts = [str(tmp_path / f"runs-{name}.db") for name in ("host-a", "host-b")]
    async with EventLog.open("all.db") as log:
        [done] = [each async for each in gather(log, parts)]
        assert isinstance(done, GatheredExperiment)
        assert [(part.failed, [each.host for each in part.recorders]) for part in done.parts] == [
            (False, ["host-a"]),
            (False, ["host-b"]),
        ]
        assert len([event async for event in log.read("town")]) == 2


def test_a_worker_on_another_host_says_why_it_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MESSAGER_STORE", "/data/runs.db")
    monkeypatch.setenv(ELSEWHERE, "")  # so that it is put back
    monkeypatch.setenv(HOST, socket.gethostname())
    set_up_worker()
    assert os.environ["MESSAGER_STORE"] == "/data/runs.db" and not capsys.readouterr().err
    monkeypatch.setenv(HOST, "another-host")
    set_up_worker()
    assert "MESSAGER_STORE" not in os.environ
    [line] = capsys.readouterr().err.splitlines()
    assert "/data/runs.db is a SQLite file on another-host" in line and "PostgreSQL" in line


async def test_a_recorder_in_the_code_of_a_worker_on_another_host_gets_the_same_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ELSEWHERE, "")  # so that it is put back
    monkeypatch.setenv("MESSAGER_STORE", str(tmp_path / "runs.db"))
    monkeypatch.setenv(HOST, "another-host")
    set_up_worker()
    monkeypatch.chdir(tmp_path)
    for store in (str(tmp_path / "runs.db"), "sqlite:///runs.db"):
        with pytest.raises(StoreError, match=r"runs\.db is a SQLite file on another-host, .*PostgreSQL"):
            async with EventLog.open(store):
                pass
    assert not (tmp_path / "runs.db").exists()
    async with EventLog.open("mine.db"):
        assert (tmp_path / "mine.db").exists()


async def test_a_messager_that_is_not_connected_goes_to_another_process_and_one_in_use_says_why_not() -> None:
    messager = Messager(RedisConfig(server="h", password="p"), "e1", "an interceptor", log_limit=5)
    messager.describe("a name", seed=7)
    there = pickle.loads(pickle.dumps(messager))
    assert (there.exp_id, there.message_interceptor, there.broker.url) == ("e1", "an interceptor", "redis://h:6379/0")
    hook = Described()
    there.connected = True
    there.add_log_hook(hook)
    assert hook.told == ("a name", {"seed": 7})
    async with Messager(MemoryBroker(), "e1") as connected:
        for other in (there, connected, Messager(MemoryBroker(), "e1")):
            with pytest.raises(TypeError, match=r"before init\(\) and without log hooks"):
                pickle.dumps(other)


@pytest.mark.parametrize(
    "url",
    [
        "redis://bob:hunter2@h:6380/5",
        "rediss://bob:hunter2@h:6380/5?ssl_cert_reqs=none",
        "unix://bob:hunter2@/run/redis.sock?db=5",
        "redis+sentinel://bob:hunter2@h:1,i:2/here/5?sentinel_password=hunter3",
        "redis+cluster://bob:hunter2@h:1,i:2",
        "mqtts://bob:hunter2@h:1/?client_id=me&qos=2",
    ],
)
def test_a_broker_of_a_url_goes_to_another_process_as_that_with_what_else_it_was_given(url: str) -> None:
    broker: Any = open_broker(url, ping_interval=3.0)
    alone: Any = pickle.loads(pickle.dumps(broker))
    there = pickle.loads(pickle.dumps(Messager(broker, "e1", "an interceptor")))
    again = pickle.loads(pickle.dumps(there))
    for made in (alone, there.broker, again.broker):
        assert (type(made), made.url, made.ping_interval) == (type(broker), broker.url, 3.0)
        assert made._made_from[0] == url
    assert (again.exp_id, again.message_interceptor) == ("e1", "an interceptor")


async def test_a_messager_with_a_broker_of_a_url_talks_where_it_came_to_and_closes_what_came_along(
    redis: RedisServer,
) -> None:
    broker = open_broker(redis.url)
    messager = Messager(broker, "e1")
    there = pickle.loads(pickle.dumps(messager))
    async with messager, there:
        await there.subscribe_and_start_listening(["c"])
        await messager.send_message("c", {"n": 1})
        await until(lambda: not there.message_queue.empty())
        with pytest.raises(TypeError, match=r"a RedisBroker can be pickled only before it is connected"):
            pickle.dumps(broker)
        with pytest.raises(TypeError, match=r"before init\(\)"):
            pickle.dumps(messager)
        with pytest.raises(TypeError, match=r"before init\(\).*not connected either"):
            pickle.dumps(Messager(broker, "e1"))
    assert pickle.loads(pickle.dumps(there)).exp_id == "e1"  # its broker was closed with it
    assert not broker.picklable  # this one is the program's own, and stays open
    await broker.close()
    assert broker.picklable


def test_a_broker_that_was_not_made_of_a_url_says_how_it_would_travel() -> None:
    with pytest.raises(TypeError, match=r"a MqttBroker can be pickled .* made from a URL. Make it with `open_broker"):
        pickle.dumps(MqttBroker("h"))


def test_a_url_is_no_server() -> None:
    theirs = types.SimpleNamespace(server="redis://u:hush@h", port=1, db=0, password=None, timeout=1)
    for refused in (lambda: RedisConfig(server="redis://u:hush@h"), lambda: Messager(theirs, "e1")):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"server is the name of a host.*`open_broker\(url\)`") as told:
            refused()
        assert "hush" not in str(told.value)


class Described(Listed):
    told: Any = None

    def described(self, name: str | None, meta: dict[str, Any]) -> None:
        self.told = (name, meta)

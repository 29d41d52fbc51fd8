"""messager reproduce"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...text import safe
from ..launching import checked, launch, program_of
from ..numbers import Seconds
from ..options import json_option, open_log, run, store_option
from ..output import note, print_json

if TYPE_CHECKING:
    from ...experiments.records import Experiment
    from ...lockstep.reproduction import Verdict


@click.command()
@click.argument("exp")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM [ARGUMENT]...]")
@click.option("--into", metavar="ID", help="The exp_id of the new experiment. [default: EXP-2, EXP-3 ...]")
@click.option(
    "--patience",
    type=Seconds(min=0, min_open=True),
    default=30.0,
    metavar="S",
    help="Give up a wait after this time without progress. [default: 30]",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="HOST:PORT",
    help="Permit connections to this address. Repeatable. [default: only the broker and the store]",
)
@store_option
@json_option
def command(
    exp: str,
    command: tuple[str, ...],
    into: str | None,
    patience: float,
    allow: tuple[str, ...],
    store: str,
    as_json: bool,
) -> None:
    """Run a recorded program again, word for word: `messager reproduce exp-1 -- python my_society.py`.

    The program keeps its arguments, its exp_id and its channels. Its agents follow the recorded schedule, their calls
    to models (`messager run --calls`) are answered from the log, and other connections are refused. What it says is
    recorded into a new experiment, and compared with the recording.

    Exit code 0 if every message and every call is equal and the program ended with 0, else 1. Programs of several
    machines, or started apart, are given no PROGRAM: the environment of each is printed, and the verdict comes once
    Enter is pressed.
    """
    from messager.transport import run_name

    from ...lockstep.reproduction import served_environment, settings_file

    command = checked(command)
    code = 0
    of, name, location, brokers, seeds = run(_prepared(store, exp, into))
    place = store if "://" in store else location
    with tempfile.TemporaryDirectory(prefix="messager-") as folder, _brokers(brokers):
        settings = settings_file(Path(folder), of, place, patience)
        given = served_environment(place, name, settings, [*brokers, *allow], seeds, os.environ)
        if command:
            given["MESSAGER_RUN"] = run_name(program_of(command))
            code = launch(command, {**os.environ, **given})
        else:
            given["MESSAGER_RUN"] = run_name(of.exp_id)
            _wait_for_programs(given)
        found = run(_verdict(store, of, name))
    if code:
        note(f"the program ended with exit code {code}")
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)
    raise click.exceptions.Exit(0 if found.reproduced and not code else 1)


async def _prepared(store: str, exp: str, into: str | None) -> tuple[Experiment, str, str, list[str], dict[str, str]]:
    """Return the recording, the exp_id of the new experiment, the place of the store, the brokers, and the seeds."""
    from ...lockstep.reproduction import prepared, seeds_of

    async with open_log(store) as log:
        of = await log.experiment(exp)
        rows = await log.recorders(of)
        brokers = sorted({row.broker for row in rows if row.broker and not row.broker.startswith("memory:")})
        return of, await prepared(log, of, into), log.location, brokers, seeds_of(rows)


async def _verdict(store: str, of: Experiment, into: str) -> Verdict:
    from ...lockstep.reproduction import verdict
    from ...recording.run import drain_all

    async with open_log(store) as log:
        await drain_all(log)
        return await verdict(log, of, into)


def _wait_for_programs(given: dict[str, str]) -> None:
    import shlex

    click.echo("Start each program with this environment:\n")
    for name, value in given.items():
        click.echo(f"  export {name}={shlex.quote(value)}")
    click.echo("\nPress Enter once all of them have ended.")
    if not sys.stdin.readline():
        raise click.UsageError("there is nobody to press Enter once the programs have ended: give a PROGRAM")


@contextmanager
def _brokers(urls: list[str]) -> Iterator[None]:
    """Start the Redis servers of the loopback interface that do not answer."""
    from contextlib import ExitStack
    from urllib.parse import urlsplit

    from messager.testing import RedisServer

    with ExitStack() as stack:
        for url in urls:
            parts = urlsplit(url)
            if (
                parts.scheme != "redis"
                or parts.hostname not in ("127.0.0.1", "localhost", "::1")
                or _answers(parts.port)
            ):
                continue
            server = RedisServer()
            server.port = parts.port or 6379
            server.start()
            stack.callback(server.remove)
            note(f"started a broker at {safe(url)}, which did not answer")
        yield


def _answers(port: int | None) -> bool:
    import socket

    try:
        with socket.create_connection(("127.0.0.1", port or 6379), 1):
            return True
    except OSError:
        return False


def _show(found: Verdict) -> None:
    first, *rest = found.lines()
    click.secho(first, fg="green" if found.reproduced else "red", bold=True)
    for line in rest:
        click.echo(line)
    if not found.reproduced:
        note(f"`messager diff {safe(found.exp_id)} {safe(found.into)} --by-sender` compares all of it")

"""messager status"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from messager.start.hook import hook_file

from ...text import length, plural, safe
from ..numbers import Seconds, Whole
from ..options import asynchronous, json_option, open_log, store_option
from ..output import Column, facts, identifier, print_json, size, table
from ..place import FOLDER

if TYPE_CHECKING:
    from ...queries.status import StoreStatus

STATES = ("alive", "idle", "dead", "incomplete")


@click.command()
@click.option(
    "--spool",
    type=FOLDER,
    metavar="DIR",
    help="Folder of the spools. [default: beside the store, and those of MESSAGER_SPOOL and of this user]",
)
@click.option(
    "--idle",
    type=Seconds(min=0),
    default=60.0,
    metavar="SECONDS",
    help="A recorder without a commit for this long is idle. [default 60]",
)
@click.option(
    "--min-free",
    type=Whole(min=0),
    default=1024,
    metavar="MB",
    help="Report a problem if less is free on the disk of the store. [default 1024]",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing unless there is a problem; for cron.")
@store_option
@json_option
@asynchronous
async def command(spool: str | None, idle: float, min_free: int, quiet: bool, store: str, as_json: bool) -> None:
    """Report the state of a store: recorders, spools, disk space, and problems.

    Exit code 1 if there is a problem, each with a line that names the remedy; 3 if the store is unavailable.
    """
    found = await _status(spool, idle, min_free, store)
    if as_json and (found.problems or not quiet):
        print_json({**asdict(found), "ok": not found.problems})
    elif found.problems or not quiet:
        show(found)
    if found.problems:
        raise click.exceptions.Exit(1)


async def _status(spool: str | None, idle: float, min_free: int, store: str) -> StoreStatus:
    from ...errors import StoreUnavailable
    from ...queries.status import kept_for, status

    folder = None if spool is None else Path(spool)
    try:
        async with open_log(store) as log:
            return await status(log, folder, idle_s=idle, min_free=min_free << 20)
    except StoreUnavailable as error:
        raise StoreUnavailable(error.location, error.reason + kept_for(store, folder)) from None


def show(found: StoreStatus) -> None:
    """Print figures, recorders that have not ended, spools and problems."""
    states = [each.state for each in found.recorders]
    counts = [f"{states.count(state)} {state}" for state in STATES if state in states or state != "incomplete"]
    free = "" if found.free_bytes is None else f", {size(found.free_bytes)} free on its disk"
    unfinished = (
        f", {found.unfinished} unfinished (`messager compact` deletes what was killed)" if found.unfinished else ""
    )
    waiting = sum(info.events for info in found.spools)
    facts(
        [
            ("store", f"{found.store} ({size(found.store_bytes)}{free})"),
            ("experiments", f"{found.open} open, {found.closed} closed{unfinished}"),
            ("recorders", ", ".join(counts)),
            ("spools", f"{len(found.spools)}, {plural(waiting, 'event')}" if found.spools else "none"),
            ("gaps", f"{found.gaps} in open experiments"),
            *([("hook", f"{file} (`messager hook remove` removes it)")] if (file := hook_file()).exists() else []),
        ]
    )
    _show_recorders(found)
    _show_spools(found)
    click.echo()
    for line in found.unheard:
        click.echo(f"{click.style('not recorded', fg='yellow')}  {safe(line)}")
    for problem in found.problems:
        click.echo(f"{click.style('problem', fg='red', bold=True)}  {safe(problem.what)}: {safe(problem.remedy)}")
    if not found.problems:
        click.echo(f"{click.style('ok', fg='green')}  no problems")


def _show_recorders(found: StoreStatus) -> None:
    if not found.recorders:
        return
    click.echo()
    table(RECORDERS, found.recorders)


def _show_spools(found: StoreStatus) -> None:
    if not found.spools:
        return
    click.echo()
    table(SPOOLS, found.spools)


def _ago(seconds: float | None) -> str:
    return "-" if seconds is None else f"{length(max(seconds, 0))} ago"


RECORDERS = (
    Column("STATE", "state"),
    Column("EXP_ID", "exp_id"),
    Column("RECORDER", "recorder", identifier),
    Column("EVENTS", "events"),
    Column("LAST COMMIT", "commit_age_s", _ago),
    Column("HEARTBEAT", "heartbeat_age_s", _ago),
    Column("HOST", "host"),
    Column("PID", "pid", identifier),
)
SPOOLS = (
    Column("SPOOL OF", "exp_id", lambda exp_id: exp_id or "?"),
    Column("EVENTS", "events"),
    Column("SIZE", "bytes", size),
    Column("OLDEST", "oldest_at", lambda ts: _ago(None if ts is None else (time.time_ns() - ts) / 1e9)),
    Column("DRAINED BY", "held", lambda held: "its recorder" if held else "nobody"),
    Column("FILE", "path"),
)

"""messager run"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from messager.compat.loading import ADAPTERS

from ...text import plural, safe
from ..launching import checked, launch, program_of
from ..options import durability_option, open_log, run, store_option
from ..output import note

if TYPE_CHECKING:
    from ...recording.run import Recorded


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGUMENT]...")
@click.option(
    "--exp",
    metavar="ID",
    help="The exp_id of the experiment. [default: those of the program's Messagers; for other transports, the name of "
    "the program and the time]",
)
@click.option(
    "--compat",
    "adapters",
    multiple=True,
    type=click.Choice(sorted(ADAPTERS)),
    help="Install the adapter of this framework only. Repeatable. [default: that of each framework that the program "
    "imports]",
)
@click.option("--calls", is_flag=True, help="Record calls to models as well, so that the run can be reproduced.")
@click.option(
    "--also", multiple=True, metavar="HOST", help="With --calls, record the requests to this host, too. Repeatable."
)
@click.option("--all-http", is_flag=True, help="With --calls, record all HTTP requests.")
@click.option(
    "--bodies",
    type=click.Choice(["all", "none"]),
    default="all",
    help="With --calls, none keeps no prompts and no answers: such calls cannot be reproduced. [default: all]",
)
@durability_option
@store_option
def command(
    command: tuple[str, ...],
    exp: str | None,
    adapters: tuple[str, ...],
    calls: bool,
    also: tuple[str, ...],
    all_http: bool,
    bodies: str,
    durability: str,
    store: str,
) -> None:
    """Run a program, and record what its agents say: `messager run -- python my_society.py`.

    The program is not changed. Its Messagers and transports are recorded, and the messages of the frameworks that it
    uses, if they have an adapter; so are those of the processes that it starts. The exit code is that of the program.
    """
    from messager.transport import run_name

    from ...recording.run import Calls, environment_of

    command = checked(command)
    name, since = run_name(program_of(command)), time.time_ns()
    location = run(_location(store))  # before the program runs, as it may be refused
    place = store if "://" in store else location
    wanted = Calls(also, all_http, bodies) if calls or also or all_http else None
    given = None if durability == "buffered" else durability  # or what MESSAGER_DURABILITY says
    code = launch(command, environment_of(name, place, exp, adapters or None, given, wanted, os.environ))
    _show(run(_recorded(store, name, since)), location, code)
    raise click.exceptions.Exit(code)


async def _location(store: str) -> str:
    async with open_log(store, create=True) as log:
        return log.location


async def _recorded(store: str, name: str, since: int) -> Recorded:
    from ...recording.run import recorded

    async with open_log(store) as log:
        return await recorded(log, name, since)


def _show(found: Recorded, location: str, code: int) -> None:
    if not found.messages:
        if code:
            note(f"nothing was recorded: the program ended with exit code {code} before it said anything")
            return
        known = ", ".join(sorted(ADAPTERS))
        note(
            "nothing was recorded: the program used no Messager, no transport and none of the frameworks that have an "
            f"adapter ({known}). docs/transports.md tells how to record others"
        )
        return
    named = ", ".join(f"{plural(number, 'message')} of {safe(exp_id)}" for exp_id, number in found.messages.items())
    named += f" and {plural(found.calls, 'call')}" if found.calls else ""
    note(f"recorded {named} in {plural(found.processes, 'process')} into {safe(location)}")

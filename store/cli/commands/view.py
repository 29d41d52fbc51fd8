"""messager view"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from importlib.util import find_spec
from urllib.parse import urlencode

import click

from ...errors import StoreError
from ...text import safe
from ..options import asynchronous, store_option
from ..output import note
from ..place import PLACE


def _given(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the option of the verb, else that of `messager`; None if the page has nothing to do with brokers."""
    return value or ctx.find_root().params.get("broker")


NEEDED = ("starlette", "uvicorn", "duckdb", "pyarrow")
"""Packages of the extra `view`."""


@click.command()
@click.argument("exp", required=False)
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="The port to listen on; default: a free one.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option(
    "--broker", "--redis", "broker", type=PLACE, metavar="URL", callback=_given, help="The broker for replays."
)
@click.option("--allow-replay", is_flag=True, help="Let the page start replays onto --broker, and control them.")
@click.option(
    "--control", type=PLACE, metavar="PATH", help="Show the replay that has the control socket PATH (docs/replay.md)."
)
@store_option
@asynchronous
async def command(
    exp: str | None,
    port: int | None,
    no_open: bool,
    broker: str | None,
    allow_replay: bool,
    control: str | None,
    store: str,
) -> None:
    """Serve the page of an experiment on this machine, until Ctrl-C.

    Without EXP, the page lists the experiments of the store. An experiment that does not exist yet is waited for, and
    one that is being recorded is followed.

    The page is for you alone: the printed link works once, and the server listens on 127.0.0.1 only.
    """
    from messager.drivers import requirement

    if lacking := next((name for name in NEEDED if find_spec(name) is None), None):
        packages = " ".join(f"'{requirement(name)}'" for name in NEEDED)
        raise StoreError(f"the server needs {lacking}, which is not installed: `pip install {packages}`")
    if allow_replay and broker is None and control is None:
        raise click.UsageError("--allow-replay needs --broker, the broker that replays publish to, or --control")
    async with AsyncExitStack() as stack:
        from ...view.server.access import Access
        from ...view.server.app import application, prepare
        from ...view.server.comparing import compare_route
        from ...view.server.control_client import listens
        from ...view.server.questions import Questions
        from ...view.server.replaying import Replaying
        from ...view.server.served_store import ServedStore
        from ...view.server.serving import listening, serve

        stop = asyncio.Event()
        served = await stack.enter_async_context(ServedStore(store))
        questions = await stack.enter_async_context(Questions(store))
        replaying = Replaying(store, broker or "", stop, allow=allow_replay, control=control)
        await stack.enter_async_context(replaying)
        more = [*replaying.routes(), compare_route(served)]
        listener = stack.enter_context(listening(port))
        home = f"/?{urlencode({'exp': exp})}" if exp else "/"
        app = application(served, questions, stop, replay=replaying.head, more=more)
        access = Access(app, listener.getsockname()[1], home)
        missing = None if exp is None else await prepare(served, questions, exp)
        idle = control is not None and not await listens(control)

        def started(url: str) -> None:
            click.echo(url)
            if missing is not None:
                note(f"waiting for {safe(str(exp))}: {safe(str(missing))}")
            if idle:
                note(f"waiting for a replay at {control}")
            note("the link works once; Ctrl-C ends the server")

        await serve(access, listener, stop, started=started, browser=not no_open)

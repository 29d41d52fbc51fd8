"""messager record"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from ...text import plural, safe
from ..options import broker_at, broker_option, durability_option, meta_values, opened, run, store_option
from ..output import clear_line, note

if TYPE_CHECKING:
    from ...recording.tap import Tap


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--exp", required=True, metavar="ID", help="The exp_id to record under.")
@click.option("--name", metavar="TEXT", help="A name to find it again by.")
@click.option("--tag", "tags", multiple=True, metavar="TAG")
@click.option("--meta", multiple=True, metavar="K=V", help="Anything worth keeping: seed=7, model=m.")
@click.option(
    "--if-exists",
    type=click.Choice(["append", "fail", "new"]),
    help="What to do where the exp_id is taken: append to it (the default while it is open), fail (the "
    "default when it is closed), or make a new one with a number behind its exp_id.",
)
@click.option(
    "--keep-names",
    is_flag=True,
    help="On MQTT, take exps:... as it is written. Else it is exps/... there.",
)
@durability_option
@click.option(
    "--duration", type=click.FloatRange(min=0, min_open=True), metavar="S", help="Stop after so many seconds."
)
@click.option("--max-events", type=click.IntRange(min=1), metavar="N", help="Stop after so many messages.")
@click.option("--close", "close_it", is_flag=True, help="Close the experiment at the end.")
@store_option
@broker_option
def command(**given: Any) -> None:
    """Record what is published on channels that match PATTERN (default: *), by listening.

    A PATTERN is a glob, or on MQTT a filter such as exps/+/agents/#. One that begins with a wildcard leaves out what
    the server publishes by itself, such as __sentinel__:hello and __keyspace@0__:...; '__key*' records those.

    Over MQTT, a message that the broker had retained, or that came in another quality of service than 1, is
    recorded with that fact. One that is published to be retained while this listens comes without that mark (so it
    is in MQTT 3.1.1), and a replay does not retain it.

    The system that is recorded needs no change. `recording` on standard error says that
    the subscription is active; Ctrl-C ends the recording cleanly, with exit code 0.
    """
    run(_record(**given))


async def _record(
    patterns: tuple[str, ...],
    exp: str,
    name: str | None,
    tags: tuple[str, ...],
    meta: tuple[str, ...],
    if_exists: Any,
    keep_names: bool,
    durability: Any,
    duration: float | None,
    max_events: int | None,
    close_it: bool,
    store: str,
    broker: str,
) -> None:
    from ...recording.recorder import Recorder
    from ...recording.tap import Tap

    wanted = _fitting(patterns, broker, keep_names) or ["*"]
    if durability == "strict":
        note("a listener only receives, and receptions are buffered in strict too")
    described = meta_values(meta)
    async with broker_at(broker) as carrier:
        await carrier.connect()  # before an experiment is made that would stay empty
        async with opened(store, create=True) as log:
            recorder = Recorder(
                log,
                exp,
                name=name,
                tags=tags,
                meta=described,
                if_exists=if_exists,
                durability=durability,
                role="tap",
                patterns=wanted,
                close_experiment=close_it,
            )
            async with recorder:

                def active() -> None:
                    where = safe(f"{recorder.exp_id} from {carrier.url} into {log.location}")
                    click.echo(f"recording {where} (Ctrl-C ends it)", err=True)

                tap = Tap(carrier, recorder, wanted, active=active, progress=_progress(), notice=_notice)
                await _until_interrupted(tap.run(duration=duration, max_events=max_events))
    if sys.stderr.isatty():
        clear_line()
    gaps = f", with {plural(tap.gaps, 'gap')}: messages may be missing" if tap.gaps else ""
    lost = f", {recorder.dropped} not stored" if recorder.dropped else ""
    note(f"recorded {plural(tap.messages, 'message')} of {recorder.exp_id}{gaps}{lost}")
    if recorder.spooled:
        where = safe(str(recorder.spool_path))
        note(f"{plural(recorder.spooled, 'event')} wait in {where}: `messager drain` puts them into the store")
        raise click.exceptions.Exit(3)
    if recorder.dropped:
        raise click.exceptions.Exit(1)


def _fitting(patterns: tuple[str, ...], broker: str, keep_names: bool) -> list[str]:
    """The patterns as they fit the broker: on MQTT, channels of the grammar are topics, unless `keep_names`."""
    from messager import channels
    from messager.brokers import kind_of

    kind = kind_of(broker)
    if kind.separator == ":":
        return list(patterns)
    wanted = list(patterns) if keep_names else [channels.with_separator(name, kind.separator) for name in patterns]
    for topic in wanted:
        try:
            kind.check_pattern(topic)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    for pattern, topic in zip(patterns, wanted, strict=True):
        if pattern != topic:
            note(f"on MQTT {safe(pattern)} is {safe(topic)}; messager.Messager keeps its channels there: --keep-names")
    return wanted


async def _until_interrupted(recording: Any) -> None:
    """Run until it ends, or until Ctrl-C or a polite kill, which are the usual ways to end it."""
    task = asyncio.ensure_future(recording)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _notice(text: str) -> None:
    """A line of its own, also where a counter stands on the line."""
    if sys.stderr.isatty():
        clear_line()
    click.echo(safe(text), err=True)


def _progress() -> Any:
    """A counter that rewrites its line on a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(tap: Tap) -> None:
        click.echo(f"\r{tap.messages:,} messages", nl=False, err=True)

    return show

"""messager record"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import click

from ...text import plural, safe
from ..numbers import Seconds, Whole
from ..options import asynchronous, broker_at, broker_option, durability_option, meta_values, open_log, store_option
from ..output import note
from ..progress import Progress

if TYPE_CHECKING:
    from ...recording.tap import Tap


@click.command()
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--streams", multiple=True, metavar="PATTERN", help="Record the Redis streams that match. Repeatable.")
@click.option("--from-start", is_flag=True, help="With --streams: record also what is in the streams already.")
@click.option("--exp", required=True, metavar="ID", help="The exp_id of the experiment.")
@click.option("--name", metavar="TEXT", help="A name for the experiment.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag for the experiment. Repeatable.")
@click.option("--meta", multiple=True, metavar="K=V", help="Meta of the experiment: seed=7, model=m. Repeatable.")
@click.option(
    "--if-exists",
    type=click.Choice(["append", "fail", "new"]),
    help="If the exp_id exists: append to the experiment (the default if it is open), fail (the default if it is "
    "closed), or create a new one, with a number appended to the exp_id.",
)
@click.option(
    "--keep-names",
    is_flag=True,
    help="On MQTT, do not translate exps:... to exps/...",
)
@durability_option
@click.option("--duration", type=Seconds(min=0, min_open=True), metavar="S", help="Stop after S seconds.")
@click.option("--max-events", type=Whole(min=1), metavar="N", help="Stop after N messages.")
@click.option("--close", "close_it", is_flag=True, help="Close the experiment at the end.")
@store_option
@broker_option
@asynchronous
async def command(
    patterns: tuple[str, ...],
    streams: tuple[str, ...],
    from_start: bool,
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
    """Subscribe to channels that match PATTERN (default: *), and record the messages published on them.

    The recorded system is not modified. The line `recording ...` on standard error appears when the subscription is
    active. Ctrl-C ends the recording cleanly, with exit code 0.

    PATTERN is a glob, or on MQTT a filter such as exps/+/agents/#. A pattern that starts with a wildcard leaves out
    messages of the server itself, such as __sentinel__:hello and __keyspace@0__:...; '__key*' records those.

    On MQTT, a retained message, and a quality of service other than 1, are recorded as such. MQTT 3.1.1 does not mark
    a message as retained that is published during the recording, so a replay does not retain it.

    With --streams, entries of streams whose keys match are recorded too, and without PATTERN nothing else. They are
    read without a consumer group, so nobody is disturbed; entries that were removed before they were read are counted
    in a gap. A queue that its reader deletes from is a race: record it in its program, with an adapter.
    """
    from ...recording.recorder import Recorder
    from ...recording.tap import Tap

    _check_streams(streams, from_start, broker)
    wanted = _fitting(patterns, broker, keep_names) or ([] if streams else ["*"])
    if durability == "strict":
        note("`record` only receives messages, and received messages are buffered in strict mode too")
    described = meta_values(meta)
    async with broker_at(broker) as carrier:
        await carrier.connect()  # before an experiment is created that would stay empty
        async with open_log(store, create=True) as log:
            recorder = Recorder(
                log,
                exp,
                name=name,
                tags=tags,
                meta=described,
                if_exists=if_exists,
                durability=durability,
                role="tap",
                patterns=[*wanted, *streams],
                close_experiment=close_it,
            )
            async with recorder:
                with Progress("recording", "messages") as progress:

                    def active() -> None:
                        names = safe(f"{recorder.exp_id} from {carrier.url} into {log.location}")
                        click.echo(f"recording {names} (Ctrl-C ends it)", err=True)

                    def notice(text: str) -> None:
                        progress.clear()
                        click.echo(safe(text), err=True)

                    def count(tap: Tap) -> None:
                        progress(tap.messages)

                    tap = Tap(
                        *(carrier, recorder, wanted),
                        streams=streams,
                        from_start=from_start,
                        active=active,
                        progress=count,
                        notice=notice,
                    )
                    await _until_interrupted(tap.run(duration=duration, max_events=max_events))
    gaps = f", with {plural(tap.gaps, 'gap')}: messages may be missing" if tap.gaps else ""
    lost = f", {recorder.dropped} not stored" if recorder.dropped else ""
    note(f"recorded {plural(tap.messages, 'message')} of {recorder.exp_id}{gaps}{lost}")
    if recorder.spooled:
        spool = safe(str(recorder.spool_path))
        note(f"{plural(recorder.spooled, 'event')} wait in {spool}: `messager drain` copies them into the store")
        raise click.exceptions.Exit(3)
    if recorder.dropped:
        raise click.exceptions.Exit(1)


def _check_streams(streams: tuple[str, ...], from_start: bool, broker: str) -> None:
    """Raise `UsageError` for streams of a broker that has none, and for an option without them."""
    from messager.brokers import kind_of

    kind = kind_of(broker)
    if streams and "stream" not in kind.carriers:
        raise click.UsageError(f"{kind.name} has no streams: leave out --streams, or give a Redis server with --broker")
    if from_start and not streams:
        raise click.UsageError("--from-start is about streams: add --streams PATTERN")


def _fitting(patterns: tuple[str, ...], broker: str, keep_names: bool) -> list[str]:
    """Return the patterns for the broker: on MQTT, exps:... becomes exps/..., unless `keep_names`."""
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
            note(f"on MQTT {safe(pattern)} is {safe(topic)}; add --keep-names to record a messager.Messager")
    return wanted


async def _until_interrupted(recording: Any) -> None:
    """Run until it ends, or until SIGINT or SIGTERM, which end a recording cleanly."""
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

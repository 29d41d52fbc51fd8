"""messager replay"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from ..filters import Filters, note_where, selection_options
from ..live_options import given_live, live_options, show_cast
from ..numbers import Whole
from ..options import asynchronous, broker_at, broker_option, json_option, open_log, pairs, store_option
from ..output import note, print_json
from ..place import PLACE
from ..replay_keys import run_controlled
from ..replay_output import ReplayProgress, show_report, show_stopped


@click.command()
@click.argument("exp")
@click.option("--speed", default="1", metavar="N|max", help="Multiple of the recorded speed, or max. [default: 1]")
@click.option("--rate", metavar="N", help="At most N messages a second, at any speed.")
@click.option("--max-hold", metavar="S", help="Give up if a subscriber does not read for this long.")
@selection_options
@click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="OLD=NEW",
    help="Publish messages of channel OLD on NEW; a:*=b:* maps prefixes. Applied before --to-exp.",
)
@click.option("--to-exp", metavar="ID", help="Publish on the channels of this experiment: exps:ID:...")
@click.option(
    "--keep-names",
    is_flag=True,
    help="Do not translate names. By default, exps:... becomes exps/... from Redis to MQTT, and vice versa.",
)
@click.option("--max-gap", metavar="S", help="Shorten pauses to S seconds.")
@click.option("--loop", "loops", type=Whole(min=0), default=1, metavar="N", help="Repeat N times; 0: until Ctrl-C.")
@click.option(
    "--wait-for-subscribers",
    "subscribers",
    type=Whole(min=0),
    default=0,
    metavar="N",
    help="Start when N clients are subscribed to a channel of the replay, or on Redis to any pattern. Fails after 60 s "
    "with exit code 3. Not on MQTT.",
)
@click.option(
    "--force", is_flag=True, help="Also publish payloads above 28 MB, although Redis disconnects subscribers."
)
@click.option("--into-live", is_flag=True, help="Also publish on channels that are being recorded into EXP now.")
@live_options
@click.option("--paused", is_flag=True, help="Begin paused, before the first message.")
@click.option(
    "--control",
    type=PLACE,
    metavar="PATH",
    help="Make a local socket at PATH, for this user only, that takes pause, resume, step, next, seek, speed, status "
    "and subscribe as JSON lines (docs/replay.md).",
)
@click.option("--dry-run", is_flag=True, help="List what would be published, and publish nothing.")
@store_option
@broker_option
@json_option
@asynchronous
async def command(
    exp: str,
    speed: str,
    rate: str | None,
    max_hold: str | None,
    filters: Filters,
    mapping: tuple[str, ...],
    to_exp: str | None,
    keep_names: bool,
    max_gap: str | None,
    loops: int,
    subscribers: int,
    force: bool,
    into_live: bool,
    paused: bool,
    control: str | None,
    dry_run: bool,
    store: str,
    broker: str,
    as_json: bool,
    **lives: Any,
) -> None:
    """Publish the messages of an experiment again, in timestamp order, byte for byte.

    A message is a sent event; on channels that were recorded by `messager record` only, it is a received event of one
    recorder. --kind publishes events of this kind instead; gaps and marks cannot be published. POINT is an ISO time,
    an offset from the first event (90, 1.5h; -30s is from the last event), a cursor ts:recorder:seq, or mark:NAME
    (mark:NAME#2 is the second mark of this name).

    With --live, the messages of these agents are expected from live programs instead: each recorded message is
    published when the live ones before it were said, and what the agents say is compared with the recording. The exit
    code is 1 if it differs.

    The replay waits for slow subscribers, at any speed, so that Redis does not disconnect them. If the broker does
    not report the backlog of its subscribers, as with MQTT, --speed max needs --rate.

    Messages that the server published itself, such as __sentinel__:hello, __keyspace@0__:... and $SYS/..., are left
    out and counted. Messages that the broker refuses, for example because of an invalid MQTT topic, are counted and
    listed, and the exit code is 1. A dry run lists both. A lost connection ends the replay with exit code 3.

    In a terminal, keys control the replay: space pauses and resumes, s publishes one message, the arrow keys move by
    5 s and 1 min of recorded time, + and - change the speed, q ends the replay and ? lists the keys.
    """
    from ...lockstep.live_replay import LiveReplay, LiveReplayReport
    from ...lockstep.signing import who_needs_it
    from ...replay import Replay, checked_rate, checked_speed

    reason = "a replay publishes every message of its range: leave it out"
    filters.refuse("after", "limit", "last_per", "context", reason=reason)
    selection = filters.selection()
    checked = checked_speed(speed)
    most = None if rate is None else checked_rate(rate)
    async with open_log(store) as log, broker_at(broker) as carrier:
        of = await log.experiment(exp)
        if not as_json:
            await filters.note_unknown(log, of)
            if lives["live"] and not subscribers and not dry_run:
                exp_id = to_exp or of.exp_id
                note(
                    f"live programs with the exp_id {exp_id} join with MESSAGER_REPLAY={of.exp_id} in their environment"
                )
                note(who_needs_it(exp_id))
        with ReplayProgress(subscribers=subscribers, quiet=dry_run) as progress:
            live = await given_live(log, of, _seconds, **lives)
            made: Callable[..., Replay] = partial(LiveReplay, **live) if live else Replay
            replay = made(
                log,
                of,
                carrier,
                speed="max" if checked is None else checked,
                rate=most,
                max_hold=_seconds("--max-hold", max_hold),
                selection=selection,
                mapping=pairs(mapping, "--map"),
                to_exp=to_exp,
                keep_names=keep_names,
                max_gap=_seconds("--max-gap", max_gap),
                loops=loops,
                wait_for_subscribers=subscribers,
                dry_run=dry_run,
                force=force,
                into_live=into_live,
                progress=progress,
            )
            try:
                if dry_run:
                    await replay.run()
                else:
                    await run_controlled(replay, progress, socket=control, paused=paused)
            finally:
                report = replay.report
                if (report.published or report.failures) and sys.exc_info()[0] is not None:
                    progress.clear()
                    show_stopped(report, as_json)
    note_where(selection)
    cast = report if isinstance(report, LiveReplayReport) else None
    if as_json:
        print_json(report.to_dict())
    else:
        show_report(report, waited=subscribers > 0)
        if cast is not None and not dry_run:
            show_cast(cast)
        elif cast is not None:
            click.echo("live agents  a dry run compares nothing: their messages are expected, not published")
    if report.failed or (cast is not None and not cast.equal):
        raise click.exceptions.Exit(1)


def _seconds(option: str, text: str | None) -> float | None:
    from ...log.cursor import duration_ns

    try:
        return None if text is None else duration_ns(text) / 1e9
    except (OverflowError, ValueError) as error:
        raise click.UsageError(f"{option}: {error}") from None

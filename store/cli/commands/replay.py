"""messager replay"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ...text import plural, safe
from ..options import broker_at, broker_option, chosen, json_option, opened, pairs, run, selection_options, store_option
from ..output import facts, length, note, print_json, table

if TYPE_CHECKING:
    from ...experiments.registry import Experiment
    from ...log.event_log import EventLog
    from ...replay import ReplayReport


LONGEST = 100
"""Characters of a channel that are shown."""
SHOWN = 20
"""Channels that a dry run names."""
STALLED = 5.0
"""Seconds without reading after which a subscriber is named."""


@click.command()
@click.argument("exp")
@click.option("--speed", default="1", metavar="N|max", help="Times as fast as it was recorded, or max. [default: 1]")
@click.option("--rate", metavar="N", help="At most N messages a second, whatever the speed.")
@click.option("--max-hold", metavar="S", help="Give up where a subscriber reads nothing for so long.")
@selection_options
@click.option("--start", metavar="POINT", help="From here: time, offset, cursor or mark:NAME.")
@click.option("--end", metavar="POINT", help="Up to here, excluded.")
@click.option(
    "--map",
    "mapping",
    multiple=True,
    metavar="OLD=NEW",
    help="Publish on NEW; a:*=b:* for prefixes. Before --to-exp.",
)
@click.option("--to-exp", metavar="ID", help="Publish as this experiment: exps:ID:...")
@click.option(
    "--keep-names",
    is_flag=True,
    help="Also where the kind of broker differs. Else exps:... becomes exps/... on MQTT, and the other way round.",
)
@click.option("--max-gap", metavar="S", help="Shorten silences to so many seconds.")
@click.option(
    "--loop", "loops", type=click.IntRange(min=0), default=1, metavar="N", help="So many times; 0: until Ctrl-C."
)
@click.option(
    "--wait-for-subscribers",
    "subscribers",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Begin when N clients are subscribed to a channel of the replay, or on Redis to any pattern. Fail after 60 s "
    "with exit code 3. Not on MQTT.",
)
@click.option("--force", is_flag=True, help="Also payloads (above 28 MB) for which Redis cuts subscribers off.")
@click.option("--into-live", is_flag=True, help="Also onto channels that are being recorded into EXP right now.")
@click.option("--dry-run", is_flag=True, help="Say what would be published, and publish nothing.")
@store_option
@broker_option
@json_option
def command(**given: Any) -> None:
    """Publish a stored experiment again, in timestamp order, byte for byte.

    Published are the messages: what was sent, or on channels that were only listened to
    what one recorder received. --kind takes these kinds of event instead; gaps and marks were
    never on the wire. A POINT is an ISO time, an offset from the first event (90,
    1.5h; -30s: from the last), a cursor ts:recorder:seq, or mark:NAME (mark:NAME#2: the second).

    A slow subscriber holds the replay back, at any speed, so that Redis does not cut it off. Where
    the broker does not tell what waits for its subscribers, as MQTT's never do, --speed max needs a --rate.

    Messages that a server published by itself, as __sentinel__:hello, __keyspace@0__:... and $SYS/..., are left out
    and counted. What the broker refuses, such as a name that is no MQTT topic, is counted and named, and the exit
    code is 1. A dry run names both. A lost connection ends the replay, with exit code 3.
    """
    run(_replay(**given))


async def _replay(
    exp: str,
    speed: str,
    rate: str | None,
    max_hold: str | None,
    start: str | None,
    end: str | None,
    mapping: tuple[str, ...],
    to_exp: str | None,
    keep_names: bool,
    max_gap: str | None,
    loops: int,
    subscribers: int,
    force: bool,
    into_live: bool,
    dry_run: bool,
    store: str,
    broker: str,
    as_json: bool,
    **filters: Any,
) -> None:
    from ...replay import Replay, checked_rate, checked_speed

    checked = checked_speed(speed)
    most = None if rate is None else checked_rate(rate)
    async with opened(store) as log, broker_at(broker) as carrier:
        of = await log.experiment(exp)
        if filters["channels"] and not as_json:
            await _note_unfit(log, of, filters["channels"])
        with _bar(quiet=dry_run, subscribers=subscribers) as progress:
            replay = Replay(
                log,
                of,
                carrier,
                speed="max" if checked is None else checked,
                rate=most,
                max_hold=_seconds("--max-hold", max_hold),
                **chosen(**filters),
                start=start,
                end=end,
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
                report = await replay.run()
            finally:
                report = replay.report
                if (report.published or report.failures) and sys.exc_info()[0] is not None:
                    _show_stopped(report, as_json)
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report, waited=subscribers > 0)
    if report.failed:
        raise click.exceptions.Exit(1)


async def _note_unfit(log: EventLog, of: Experiment, patterns: tuple[str, ...]) -> None:
    """Tell the patterns that fit no channel of an experiment: they are misspelt, perhaps."""
    from ...db.schema import CHANNEL
    from ...log.names import all_names
    from ...log.reading import Selection

    known = (await all_names(log.database, of.id, CHANNEL)).values()
    chosen = await Selection(channels=patterns).as_recorded(log.database, of)
    for pattern in patterns:
        if not any(chosen.fits([pattern], channel) for channel in known):
            note(f"--channel {pattern}: no channel of {of.exp_id} fits")


def _seconds(option: str, text: str | None) -> float | None:
    from ...log.cursor import duration_ns

    try:
        return None if text is None else duration_ns(text) / 1e9
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


@contextmanager
def _bar(*, quiet: bool, subscribers: int = 0) -> Iterator[Callable[[ReplayReport], None] | None]:
    """A progress bar on the terminal; where there is none, a line when somebody has stopped reading."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield _Stalls().show
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from ..output import console

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        waiting = f"waiting for {plural(subscribers, 'subscriber')}"
        task = bar.add_task(waiting if subscribers else "replaying", total=None)

        def show(report: ReplayReport) -> None:
            total = report.planned * (report.loops + 1) if report.published > report.planned else report.planned
            held = f"replaying (held back {report.held_back_s:.1f} s)" if report.held_back_s else "replaying"
            if report.stalled_s > STALLED:
                held = f"held back: {safe(report.held_by or '')} has read nothing for {report.stalled_s:.0f} s"
            bar.update(task, completed=report.published, total=total, description=held)

        yield show


class _Stalls:
    """Tells each stall of a subscriber once."""

    def __init__(self) -> None:
        self._told = False

    def show(self, report: ReplayReport) -> None:
        if report.stalled_s <= STALLED:
            self._told = False
        elif not self._told:
            self._told = True
            note(
                f"held back after {report.published:,} messages: the subscriber {report.held_by} has read nothing "
                f"for {STALLED:g} s (Ctrl-C ends the replay, --max-hold gives up by itself)"
            )


def _show_stopped(report: ReplayReport, as_json: bool) -> None:
    """What was done before it could not go on; the error follows."""
    if as_json:
        print_json(report.to_dict())
        return
    note(f"stopped after {report.published:,} messages")
    for _, line in _named(report):
        note(line)


def _cut(channel: str) -> str:
    return channel if len(channel) <= LONGEST else channel[: LONGEST - 1] + "…"


def _named(report: ReplayReport) -> Iterator[tuple[str, str]]:
    """A line of facts, without a name, for each failure that the report names, and one for the others."""
    for one in report.failures:
        yield (
            "",
            f"{one.outcome}: {_cut(one.channel)} ({plural(one.messages, 'message')} from {one.first} on): {one.reason}",
        )
    others = report.failed + report.unknown - sum(one.messages for one in report.failures)
    if others:
        yield "", f"and {others:,} more"


def _show_unrecorded_senders(report: ReplayReport) -> None:
    """Warn of messages that were received but not recorded as sent: a replay publishes sendings if there are any."""
    received = report.unrecorded_senders
    if received:
        where = _cut(max(received, key=lambda channel: received[channel]))
        where += f" and {plural(len(received) - 1, 'other channel')}" if len(received) > 1 else ""
        told = f"{plural(sum(received.values()), 'message')} more heard than recorded as sent, on {where}"
        click.secho(f"{told}: left out; --kind received has what was heard", fg="yellow", err=True)


def _show_internal(report: ReplayReport) -> None:
    """Say which messages of the server itself were left out; a dry run names their channels."""
    if not report.internal:
        return
    left_out = plural(sum(report.internal.values()), "message")
    if report.dry_run:
        named = [("", f"{_cut(channel)} ({plural(n, 'message')})") for channel, n in report.internal.items()]
        more = [("", f"and {plural(len(named) - SHOWN, 'more channel')}")] if len(named) > SHOWN else []
        facts([("left out", f"{left_out} that the server published by itself"), *named[:SHOWN], *more])
        return
    first, others = next(iter(report.internal)), len(report.internal) - 1
    where = _cut(first) + (f" and {plural(others, 'other channel')}" if others else "")
    click.secho(f"{left_out} left out, on {where}: the server published them by itself", fg="yellow", err=True)


def _show(report: ReplayReport, *, waited: bool = False) -> None:
    data = report.to_dict()
    if report.dry_run:
        would = plural(report.planned - report.failed, "message")
        click.echo(f"would publish {would}, and skip {plural(report.skipped, 'event')}")
        if report.channels:
            ranked = sorted(report.channels.items(), key=lambda item: (-item[1], item[0]))
            rows = [(f"{n:,}", _cut(channel)) for channel, n in ranked[:SHOWN]]
            table([("MESSAGES", "right"), ("CHANNEL", "left")], rows)
            if len(ranked) > SHOWN:
                note(f"and {len(ranked) - SHOWN:,} more channels")
        if report.failed:
            facts([("refused", f"{plural(report.failed, 'message')}, for certain"), *_named(report)])
        _show_internal(report)
        _show_unrecorded_senders(report)
        return
    if not report.planned:
        _show_internal(report)
        click.echo(f"nothing to publish: all {report.skipped:,} events are left out")
        return
    rate = report.published / report.duration_s if report.duration_s else 0.0
    requested = "max" if report.requested_speed is None else f"{report.requested_speed:g}"
    achieved = "-" if report.achieved_speed is None else f"{report.achieved_speed:,.4g}"
    lines = [
        ("published", f"{plural(report.published, 'message')} in {length(report.duration_s)} ({rate:,.0f} a second)"),
        ("skipped", f"{plural(report.skipped, 'event')}: no message of their own, filtered out, or the server's"),
        (
            "no subscriber",
            "unknown: the broker does not tell" if report.no_subscriber is None else f"{report.no_subscriber:,}",
        ),
        ("held back", length(report.held_back_s) + (" for slow subscribers" if report.held_back_s else "")),
        ("speed", f"{achieved} times (asked for {requested})"),
    ]
    if report.requested_rate is not None:
        lines.append(("rate", f"at most {report.requested_rate:,.4g} messages a second"))
    lag = data["lag_ms"]
    if lag["p50"] is not None:
        lines.append(("lag", f"p50 {lag['p50']:.2f} ms, p99 {lag['p99']:.2f} ms, max {lag['max']:.2f} ms"))
    if report.failed:
        lines += [("refused", f"{plural(report.failed, 'message')}, which were not published"), *_named(report)]
    if not report.flow_control:
        lines.append(("flow control", "off: the broker does not tell what waits for its subscribers"))
    facts(lines)
    _show_internal(report)
    _show_unrecorded_senders(report)
    if report.published and report.no_subscriber == report.published:
        remedy = "patterns of other channels count as well" if waited else "--wait-for-subscribers 1 waits for somebody"
        click.secho(f"nobody was listening; {remedy}", fg="yellow", err=True)

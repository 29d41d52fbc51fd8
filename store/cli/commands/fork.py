"""messager fork"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...text import plural, safe
from ..live_options import live_agents, show_cast
from ..match_options import match_options
from ..options import (
    asynchronous,
    broker_at,
    broker_option,
    json_option,
    meta_values,
    open_log,
    pairs,
    store_option,
)
from ..output import facts, note, print_json
from ..progress import Progress

if TYPE_CHECKING:
    from ...lockstep.report import ForkReport
    from ...log.event import Cursor
    from ...matching.match import Match


@click.command()
@click.argument("exp")
@click.option(
    "--at", metavar="POINT", help="The first event that is not repeated, such as mark:phase#2. [default: end]"
)
@click.option("--into", required=True, metavar="ID", help="The exp_id of the fork, a new experiment.")
@click.option(
    "--live",
    multiple=True,
    metavar="ID",
    default=("all",),
    help="This agent is played by a live program (see MESSAGER_REPLAY in docs/reproducing.md); its messages are "
    "expected, not published. all: every agent. none: nobody. Repeatable. [default: all]",
)
@click.option("--start", metavar="POINT", help="The agents are in the state before this point: repeat what follows.")
@click.option(
    "--preset",
    type=click.Choice(["agentsociety"]),
    help="agentsociety: do not publish recorded paybacks, which would end surveys that are live.",
)
@click.option(
    "--exclude", multiple=True, metavar="CHANNEL", help="Do not publish recorded messages on this channel. Repeatable."
)
@click.option("--map", "mapping", multiple=True, metavar="OLD=NEW", help="Rename channel OLD to NEW; a:*=b:* prefixes.")
@click.option(
    "--patience",
    default="30s",
    metavar="S",
    help="Stop after this time without progress, or without a program. [default: 30s]",
)
@match_options
@click.option("--name", metavar="TEXT", help="A name for the fork.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag for the fork. Repeatable.")
@click.option("--meta", multiple=True, metavar="K=V", help="Meta of the fork: seed=7, model=m. Repeatable.")
@store_option
@broker_option
@json_option
@asynchronous
async def command(
    exp: str,
    at: str | None,
    into: str,
    live: tuple[str, ...],
    start: str | None,
    preset: str | None,
    exclude: tuple[str, ...],
    mapping: tuple[str, ...],
    patience: str,
    match: Match | None,
    name: str | None,
    tags: tuple[str, ...],
    meta: tuple[str, ...],
    store: str,
    broker: str,
    as_json: bool,
) -> None:
    """Repeat an experiment before a point in a new experiment, and let live agents continue from there.

    Then start the live programs with MESSAGER_REPLAY=EXP, MESSAGER_STORE and the exp_id of --into; this verb waits for
    them. They repeat their part in lockstep; this verb publishes and copies the rest. Each event is recorded into the
    fork once, with its origin. The verb ends when the part is complete; the programs continue, and nothing holds them
    any more.

    A program that does not repeat its part, or does not come for --patience, stops the fork, with exit code 1. The fork
    keeps what was repeated, and `messager info` shows that it is not complete; fork again with another --into.

    POINT is a time, an offset, a cursor or mark:NAME, as for `messager events`.
    """
    from ...lockstep.fork import Fork
    from ...lockstep.policy import LockstepStopped
    from ...lockstep.run import LiveAgentFailed
    from ...lockstep.signing import who_needs_it

    stopped: str | None = None
    async with broker_at(broker) as carrier:
        await carrier.connect()  # before an experiment is created that would stay empty
        async with open_log(store) as log:
            of = await log.experiment(exp)
            agents = None if live == ("none",) else await live_agents(log, of, live)
            with Progress("forking", "events") as progress:
                fork = Fork(
                    log,
                    of.exp_id,
                    into,
                    carrier,
                    at=at,
                    live=agents,
                    start=start,
                    on_cursor=lambda cursor: _tell(progress, fork, cursor),
                    preset=preset,
                    exclude=exclude,
                    mapping=pairs(mapping, "--map"),
                    match=match,
                    patience=_seconds(patience),
                    name=name,
                    tags=tags,
                    meta=meta_values(meta),
                )
                try:
                    async with fork:
                        if not as_json and agents is not None:
                            progress.clear()
                            note(f"waiting for live programs: MESSAGER_REPLAY={of.exp_id}, exp_id {into}")
                            note(who_needs_it(into))
                        await fork.run()
                except (LockstepStopped, LiveAgentFailed) as error:
                    stopped = str(error)
    _show(fork.report, as_json)
    if stopped is not None:
        click.echo(safe(f"messager: {stopped}"), err=True)
        raise click.exceptions.Exit(1)


def _tell(progress: Progress, fork: Any, cursor: Cursor) -> None:
    report: ForkReport = fork.report
    progress(fork.done, report.events)


def _show(report: ForkReport, as_json: bool) -> None:
    if as_json:
        print_json(report.to_dict())
        return
    rest = ", the others repeated by live agents" if report.complete else " before it stopped"
    lines = [
        ("fork", f"{report.exp_id} of {report.parent}, until {report.cursor}"),
        ("prefix", "complete" if report.complete else "not complete"),
        ("events", f"{report.events:,}: {report.copied:,} copied{rest}"),
        ("published", plural(report.published, "recorded message")),
    ]
    if report.excluded:
        lines.append(("left out", f"{plural(report.excluded, 'event')} that were caused from behind the point"))
    facts(lines)
    if report.parts:
        show_cast(report, stopped=not report.complete)


def _seconds(text: str) -> float:
    from ...log.cursor import duration_ns

    try:
        return duration_ns(text) / 1e9
    except (OverflowError, ValueError) as error:
        raise click.UsageError(f"--patience: {error}") from None

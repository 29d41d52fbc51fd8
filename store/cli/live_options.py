"""Options of a replay with live agents, and what it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..log.typed_ids import ids_among
from ..text import plural, safe
from .match_options import match_options
from .output import Column, facts, table

if TYPE_CHECKING:
    from ..experiments.records import Experiment
    from ..lockstep.report import CastReport, Divergence, PartReport
    from ..log.event_log import EventLog
    from ..matching.match import Match

F = TypeVar("F", bound=Callable[..., Any])

PATIENCE = "30s"
_COLOURS = {"recorded": "red", "live": "green", "mark": "yellow", "key": "yellow"}

_OPTIONS = (
    click.option(
        "--live",
        multiple=True,
        metavar="ID",
        help="This agent is played by a live program (see MESSAGER_REPLAY in docs/reproducing.md); its messages are "
        "expected, not published. all: every agent. Repeatable.",
    ),
    click.option(
        "--patience",
        metavar="S",
        help="With --live: time without progress after which a message counts as missing. [default: 30s]",
    ),
    click.option(
        "--on-timeout",
        type=click.Choice(["continue", "stop"]),
        help="With --live: what follows a missing message. [default: continue]",
    ),
)


def live_options(function: F) -> F:
    """Add --live, --patience, --on-timeout and the options of `Match`: the arguments that `given_live` takes."""
    function = match_options(function)
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


async def given_live(
    log: EventLog,
    of: Experiment,
    seconds: Callable[[str, str | None], float | None],
    *,
    live: tuple[str, ...],
    patience: str | None,
    on_timeout: str | None,
    match: Match | None,
) -> dict[str, Any]:
    """Return the arguments of `LiveReplay` for its live agents; none without `--live`."""
    if not live:
        if patience is not None or on_timeout is not None:
            raise click.UsageError("--patience and --on-timeout are for live agents: add --live")
        if match is not None:
            raise click.UsageError(
                "--framework, --ignore, --shape, --tolerance and --bytes compare what live agents say: add --live"
            )
        return {}
    return {
        "live": await live_agents(log, of, live),
        "match": match,
        "patience": seconds("--patience", patience or PATIENCE),
        "on_timeout": on_timeout or "continue",
    }


async def live_agents(log: EventLog, of: Experiment, words: tuple[str, ...]) -> list[Any] | str:
    """Return the agents that were typed, with the types that they have in the experiment."""
    if "all" in words:
        return "all"
    known = await log.agents(of)
    return [agent for word in words for agent in ids_among(word, known)]


def show_cast(report: CastReport, *, stopped: bool = False) -> None:
    """Print what live agents said; `stopped` if they were not let to the end."""
    click.echo()
    facts(_facts(report, stopped))
    if len(report.parts) > 1:
        late = ("late", "early") if report.total("early") else ("late",)
        counts = ("expected", "matched", "different", "missing", *late, "unexpected")
        rows = [part.to_dict() | {"remark": _remark(part)} for part in report.parts]
        columns = [Column("LIVE", "label"), *(Column(name.upper(), name) for name in counts), Column("", "remark")]
        table(columns, rows)
    if report.first is not None:
        show_divergence(report.first, report.divergences)
        others = len(report.divergences) - 1
        if others:
            click.echo(f"\nand {plural(others, 'more divergence')}: see live.divergences with --json")
    for note in report.notes:
        click.secho(safe(note), fg="yellow", err=True)


def _facts(report: CastReport, stopped: bool) -> list[tuple[str, str]]:
    as_recorded = report.first is None and not report.crashed
    verdict = "equal" if report.equal else "stopped" if stopped and as_recorded else "different"
    counts = ", ".join(
        f"{report.total(name):,} {name}"
        for name in ("matched", "different", "missing", "late", "early", "unexpected")
        if report.total(name)
    )
    pace = {
        "lockstep": "lockstep: live agents heard what was heard in the recording",
        "elsewhere": "lockstep in the processes of the live agents: their own reports say whether it held",
        "weaker": "weaker: the recording does not tell what was heard, so the order of the replay was used",
        "observed": "observed on the wire: released in step, not gated",
        "timed out": "timed out: not in lockstep from there on",
        "order of reception not known": "order of reception not known: a message differs, and does not tell its sender",
    }
    lines = [
        ("live agents", f"{verdict}: {plural(report.total('expected'), 'message')} expected, {counts or 'none said'}"),
    ]
    if any(part.played for part in report.parts):
        elsewhere = report.pace == "lockstep" and any(part.player.name == "ELSEWHERE" for part in report.parts)
        lines.append(("pace", pace["elsewhere" if elsewhere else report.pace]))
    if withheld := report.total("withheld"):
        lines.append(("withheld", f"{plural(withheld, 'message')} not received, or not fetched, in the recording"))
    if report.total("lost"):
        lines.append(("lost", f"{plural(report.total('lost'), 'message')} did not arrive in time"))
    lines += [("crashed", f"{safe(who)}: {safe(error)}") for who, error in report.crashed.items()]
    return lines


def _remark(part: PartReport) -> str:
    if not part.played:
        return "nothing heard"
    order = "" if part.order_known else "order of reception not known"
    remarks = ("observed" if part.player.name == "OBSERVED" else "", "timed out" if part.timed_out else "", order)
    return ", ".join(filter(None, remarks))


def show_divergence(one: Divergence, others: list[Divergence]) -> None:
    """Print a divergence; `others` are all divergences."""
    from ..lockstep.divergence_text import divergence_lines

    click.echo()
    for role, line in divergence_lines(one, others):
        click.secho(line, fg=_COLOURS.get(role), bold=role == "title", dim=role == "heard")

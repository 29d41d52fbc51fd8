"""messager problems"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from ...json_text import dump_strict
from ...text import safe
from ..filters import Filters, note_where, selection_options
from ..options import asynchronous, open_log, output_options, store_option
from ..output import Column, Form, fitted, note, print_data, table
from ..progress import Progress
from ..short_names import ShortNames

if TYPE_CHECKING:
    from ...log.selection import Selection
    from ...queries.audit.problem import Problem
    from ...queries.problems import Problems

LEAST = 12
"""Minimum width of a channel on a narrow terminal."""


@click.command()
@click.argument("exp")
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each message, gap and recorder.")
@click.option(
    "--late", default="1s", show_default=True, metavar="TIME", help="Delivery time above which a message is late."
)
@selection_options
@store_option
@output_options
@asynchronous
async def command(exp: str, verbose: bool, late: str, store: str, form: Form, filters: Filters) -> None:
    """Report everything that went wrong in an experiment, and why.

    \b
    never arrived  no recorded listener received it: nobody was subscribed, it was sent in a
                   gap, dropped, or the listener stopped or crashed
    missed         it arrived, but not at each listener that was subscribed
    arrived twice  a listener received it more than once: which of its patterns match
    late           a delivery took longer than --late
    blocked        by which interceptor, and why, where that is recorded
    failed         not sent, or the outcome is unknown
    gap            a recorder may have missed messages: when, and why
    unclean end    a recorder ended without saying so: what may be missing

    The first four are not examined if no listener was recorded, as in most imports: the table has a dash then.
    docs/analysis.md defines each kind. Filters select messages and gaps. With -v --json, each
    problem is a line of JSON, and the last line is the summary.

    Exit code 0 if there are no problems, 1 if there are any.
    """
    from ...log.cursor import duration_ns
    from ...queries.problems import problems

    names = ("kinds", "limit", "last_per", "context")
    filters.refuse(*names, reason="has no effect on problems: leave it out")
    selection = filters.selection()
    line_by_line = verbose and form is not Form.CSV
    try:
        late_ns = duration_ns(late)
    except ValueError as error:
        raise click.UsageError(f"--late {error}") from None
    async with open_log(store) as log:
        of = await log.experiment(exp)
        lines = _Lines(selection, of.exp_id, as_json=form is Form.JSON)
        with Progress("bringing the projection up to date") as progress:

            def show(problem: Problem) -> None:
                progress.clear()
                lines.show(problem)

            found = await problems(
                log,
                of,
                selection,
                late_ns=late_ns,
                each=show if line_by_line else None,
                progress=progress,
            )
        if form is Form.TABLE:
            await filters.note_unknown(log, of)
    note_where(selection)
    if form is Form.TABLE:
        _show(found, lines, verbose)
    else:
        details = [] if line_by_line else [lines.as_json(one) for one in found.details]
        print_data(form, _summary(found, details), found.records())
    if found:
        raise click.exceptions.Exit(1)


class _Lines:
    """Lines about problems."""

    def __init__(self, selection: Selection, exp_id: str, as_json: bool) -> None:
        self._selection = selection
        self._prefix = f"exps:{exp_id}:"
        self._json = as_json
        self._width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        """Width of the lines; 0 for any. Narrow lines have the day as a heading."""
        self._day = ""
        self._names = ShortNames()

    def show(self, problem: Problem) -> None:
        """Print a problem."""
        if self._json:
            click.echo(dump_strict(self.as_json(problem)))
            return
        from ...log.event import iso

        line = ""
        if problem.cursor is not None:
            day, _, clock = iso(problem.cursor.ts)[:23].partition("T")
            if self._width and day != self._day:
                self._day = day
                click.secho(day, bold=True)
            line = f"{clock}  " if self._width else f"{day} {clock}  "
        if (entry := problem.event) is not None:
            line += f"{_name(entry.from_id)} > {_name(entry.to_id)}  {self._channel(entry.channel)}  "
        else:
            line += f"recorder {problem.recorder}  "
        line += self.short(problem.text)
        if entry is not None:
            line += f": {self._selection.text_of(entry)}"
        line = f"{problem.kind:<13}  {safe(line)}"
        if self._width:
            line = fitted(line, self._width).rstrip()
        click.echo(click.style(line[:13], fg="red") + line[13:])

    def _channel(self, channel: str | None) -> str:
        """Return a channel; on a terminal, it has a quarter of the width."""
        text = safe(self.short(channel or "-"))
        if not self._width:
            return text
        return self._names.of([text], max(self._width // 4, LEAST))[text]

    def short(self, text: str) -> str:
        """Return a text with the prefix of the experiment shortened to `*:`."""
        return text.replace(self._prefix, "*:")

    def as_json(self, problem: Problem) -> dict[str, Any]:
        """Return a problem as a JSON object."""
        entry = problem.event
        made: dict[str, Any] = {
            "problem": problem.kind,
            "reason": problem.reason,
            "cursor": None if problem.cursor is None else str(problem.cursor),
            "recorder": problem.recorder,
            "text": problem.text,
        }
        if problem.delay_ns is not None:
            made["delay_ns"] = problem.delay_ns
        if entry is not None:
            made["message"] = {
                "cursor": str(entry.cursor),
                "channel": entry.channel,
                "from_id": entry.from_id,
                "to_id": entry.to_id,
                "text": self._selection.text_of(entry),
            }
        return made


def _summary(found: Problems, details: list[dict[str, Any]]) -> dict[str, Any]:
    summary = {
        "problems": dict(found.counts),
        "notes": found.notes,
        "late_ns": found.late_ns,
        "examined": found.examined,
    }
    return summary | ({"details": details} if details else {})


def _show(found: Problems, lines: _Lines, verbose: bool) -> None:
    from ...queries.audit.problem import ARRIVALS, Kind

    if verbose and found:
        click.echo()
    rows: list[tuple[str, int | None, str]] = []
    for kind in Kind:
        reasons = sorted(found.counts.get(kind, {}).items(), key=lambda pair: (-pair[1], pair[0]))
        why = ", ".join(f"{number:,} {reason}" if len(reasons) > 1 else reason for reason, number in reasons)
        rows.append((kind, found.number(kind) if found.examined or kind not in ARRIVALS else None, lines.short(why)))
    table([Column("PROBLEM", 0), Column("NUMBER", 1), Column("WHY", 2)], rows, gives=("WHY",))
    for line in found.notes:
        note(line)
    if found and not verbose:
        note("-v prints each of them")


def _name(value: Any) -> str:
    return "?" if value is None else str(value)

"""messager events"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from ...log.typed_ids import ids_among
from ...text import plural, safe
from ..filters import Filters, note_where, selection_options_with_n
from ..markdown import MarkdownLines
from ..options import asynchronous, json_option, open_log, store_option
from ..output import KIND_COLOURS, fitted, note
from ..progress import Progress
from ..short_names import ShortNames
from ..waiting import open_when_created

if TYPE_CHECKING:
    from ...experiments.records import Experiment
    from ...log.event import Event
    from ...log.event_log import EventLog
    from ...log.selection import Selection


@click.command()
@click.argument("exp")
@selection_options_with_n
@click.option("--messages", is_flag=True, help="Print each message once, as `replay` would publish it.")
@click.option(
    "--known-to",
    metavar="ID",
    help="Only messages that this agent had received, broadcasts too, or sent before the point --before.",
)
@click.option("--before", metavar="POINT", help="With --known-to: a cursor is an event, any other point a time.")
@click.option(
    "--follow",
    is_flag=True,
    help="Print new events until the experiment is closed. Waits for EXP if it does not exist yet.",
)
@click.option("--full", is_flag=True, help="Do not shorten channels and texts to the width of the terminal.")
@click.option("--markdown", is_flag=True, help="Print Markdown: texts in full, as quotations that show what was said.")
@store_option
@json_option
@asynchronous
async def command(
    exp: str,
    messages: bool,
    known_to: str | None,
    before: str | None,
    follow: bool,
    full: bool,
    markdown: bool,
    store: str,
    as_json: bool,
    filters: Filters,
) -> None:
    """Print the events of an experiment in replay order: (ts, recorder, seq).

    POINT is an ISO time (UTC by default), an offset from the first event (90, 1.5h; -30s is from the last event), a
    cursor ts:recorder:seq, or mark:NAME (mark:NAME#2 is the second mark of this name).

    --known-to goes by what the agent's Messager had handed over, where that is recorded, and says what it went by.

    With -C, groups are separated by --, and in a terminal the selected messages are bold.

    In the output, *: means the prefix exps:EXP: of the experiment (and */ means exps/EXP/).
    """
    if as_json and markdown:
        raise click.UsageError("--markdown and --json cannot be combined")
    if (known_to is None) != (before is None):
        raise click.UsageError("--known-to and --before need each other: give an agent and a point")
    if known_to is not None:
        filters.refuse("last_per", "context", reason="--known-to prints messages as they are: leave it out")
        if follow:
            raise click.UsageError("--follow cannot be combined with --known-to")
    if follow:
        reason = "--follow prints events as they are recorded: leave it out"
        filters.refuse("since", "until", "after", "around", "last_per", "context", reason=reason)
        if messages:
            raise click.UsageError("--follow cannot be combined with --messages: give --kind sent")
    from ...projection.narrowing import Piece, selected_pages
    from ...projection.pages import found_pages
    from ...projection.selecting import Rows

    count = 0
    selection = filters.selection()
    async with open_when_created(store, exp) if follow else _opened(store, exp) as (log, of):
        if not follow and not as_json:
            await filters.note_unknown(log, of)
        print_events: _JsonLines | MarkdownLines | _Lines
        if as_json or markdown:
            print_events = _JsonLines(selection) if as_json else MarkdownLines(selection)
        else:
            print_events = _Lines(selection, full, of.exp_id)
        with Progress("bringing the projection up to date") as progress:
            if follow:
                source: AsyncIterator[list[Event]] = _followed(log, of, selection)
            elif known_to is not None:
                source = _known_to(log, of, known_to, before, selection, progress)
            elif messages or selection.by_content:
                rows = Rows.MESSAGES if messages else Rows.EVENTS
                source = found_pages(log, of, selection, rows, progress)
            else:
                source = selected_pages(log, of, selection)
            async for page in source:
                progress.clear()
                if count and not as_json and isinstance(page, Piece) and not page.continues:
                    click.secho(print_events.separator, dim=not markdown)
                print_events.show(page)
                count += len(page)
                if follow:
                    sys.stdout.flush()
        where = log.location
    note_where(selection)
    if not as_json:
        note(f"{plural(count, 'event')} of {of.exp_id} in {where}")


@asynccontextmanager
async def _opened(store: str, exp: str) -> AsyncIterator[tuple[EventLog, Experiment]]:
    async with open_log(store) as log:
        yield log, await log.experiment(exp)


async def _known_to(
    log: EventLog, of: Experiment, agent: str, before: str | None, selection: Selection, progress: Progress
) -> AsyncIterator[list[Event]]:
    from ...queries.knowledge import known_to

    known = await log.agents(of)
    agents = ids_among(agent, known)
    if not any(one in known for one in agents):
        note(f"--known-to {agent}: {of.exp_id} has no such agent")
    found = await known_to(log, of, agents, before, selection, progress=progress)
    progress.clear()
    note(f"--known-to: {_BASES[found.basis]}")
    if found.messages:
        yield found.messages


_BASES = {
    "heard": "what its Messager had handed over when it sent this message",
    "delivered": "what had arrived at its Messager; the schedule does not tell what it had fetched",
    "before": "all that was sent before, to it or on its channels; the recording does not tell what had reached it",
}


async def _followed(log: EventLog, of: Experiment, wanted: Selection) -> AsyncIterator[list[Event]]:
    limit = wanted.limit
    if limit == 0:
        return
    wanted = await log.as_recorded(of, wanted)
    skipped = wanted.skipped(log.database, of)
    async for entry in log.tail(of):
        if wanted.takes(entry, skipped):
            yield [entry]
            if limit is not None:
                limit -= 1
                if not limit:
                    return


class _JsonLines:
    """Prints events as lines of JSON. With context, `selected` tells the events that the filters select."""

    separator = ""

    def __init__(self, selection: Selection) -> None:
        from ...formats.jsonl import EventText, attributes_of
        from ...log.event import iso

        self._context = selection if selection.context else None
        self._iso = iso
        self._attributes = attributes_of
        self._text = EventText(ascii=True, strict=True)
        self._second, self._time = 0, iso(0)[:-10]
        """The text of a second: events of one page are close to each other."""

    def show(self, page: list[Event]) -> None:
        sys.stdout.write("".join(map(self._line, page)))

    def _line(self, entry: Event) -> str:
        second, nanoseconds = divmod(entry.ts, 1_000_000_000)
        if second != self._second:
            self._second, self._time = second, self._iso(entry.ts)[:-10]
        time = f"{self._time}{nanoseconds:09d}Z" if self._time.endswith(".") else entry.time
        place = f'"cursor": "{entry.ts}:{entry.recorder}:{entry.seq}", "time": "{time}"'
        line = f'{{{place}, "recorder": {entry.recorder}, "seq": {entry.seq}, {self._text.fields(entry)}'
        line += f', "derived": {self._text.dumps(entry.derived_ids) if entry.flags else "[]"}'
        if extra := self._attributes(entry):
            line += f", {self._text.dumps(extra)[1:-1]}"
        if self._context is not None:
            line += f', "selected": {"true" if self._context.takes(entry) else "false"}'
        return line + "}\n"


class _Lines:
    """Prints events as lines of columns, with a heading for each day."""

    separator = "--"

    def __init__(self, selection: Selection, full: bool, exp_id: str) -> None:
        self._selection = selection
        self._day = ""
        self._exp_id = exp_id
        self._width = 0 if full or not sys.stdout.isatty() else shutil.get_terminal_size().columns
        self._colour = sys.stdout.isatty()
        self._people = 9 if self._width else 15  # widths of columns; they grow with the contents
        self._wide = 0 if self._width else 30
        self._names = ShortNames()

    def show(self, page: list[Event]) -> None:
        from rich.cells import cell_len

        people = [_people(entry) for entry in page]
        channels = [_channel(entry.channel, self._exp_id) for entry in page]
        self._people = max(self._people, min(max(map(cell_len, people), default=0), 15))
        if self._width:
            short = self._names.of(channels, max(self._wide, min(max(map(cell_len, channels), default=0), self._most)))
            channels = [short[channel] for channel in channels]
            self._wide = max(self._wide, *map(cell_len, channels))
        for entry, who, channel in zip(page, people, channels, strict=True):
            self._show(entry, who, channel)

    def _show(self, entry: Event, people: str, channel: str) -> None:
        from rich.cells import cell_len, set_cell_size

        day, _, clock = entry.time.partition("T")
        if day != self._day:
            self._day = day
            click.secho(day, bold=True)
        place = channel + " " * (self._wide - cell_len(channel))
        left = f"{clock[:12]}  {entry.kind:<8}  {fitted(people, self._people)}  {place}  "
        text = safe(_outcome(entry) + self._selection.text_of(entry))
        if self._width:
            room = max(self._width - cell_len(left), 1)
            if cell_len(text) > room:
                text = set_cell_size(text, room - 1) + "…"
        if self._colour:
            kind = click.style(f"{entry.kind:<8}", fg=KIND_COLOURS[entry.kind])
            left = left.replace(f"{entry.kind:<8}", kind, 1)
            if self._selection.context and self._selection.takes(entry):
                text = click.style(text, bold=True)
        click.echo(left + text)

    @property
    def _most(self) -> int:
        """The maximum width of a channel; at least 20 columns are left for the text."""
        room = self._width - 28 - self._people
        return max(min(room - 20, max(30, room // 2)), 8)


def _outcome(entry: Event) -> str:
    """Return the outcome of a message that could not be published, as a prefix of its text."""
    if entry.kind != "failed" or not isinstance(entry.meta, dict) or "outcome" not in entry.meta:
        return ""
    error = entry.meta.get("error")
    return f"{entry.meta['outcome']}{'' if error is None else f' ({error})'}: "


def _person(agent: Any) -> str:
    return "?" if agent is None else safe(str(agent))


def _people(entry: Event) -> str:
    return "" if entry.channel is None else f"{_person(entry.from_id)} > {_person(entry.to_id)}"


def _channel(channel: str | None, exp_id: str) -> str:
    """Return a channel as text. The prefix of the experiment itself becomes `*`: still a pattern that matches."""
    from messager import channels

    if channel is None:
        return ""
    parsed = channels.parse(channel)
    if parsed is None or parsed.exp_id != exp_id:
        return safe(channel)
    return "*" + safe(channel[len("exps") + len(parsed.separator) + len(exp_id) :])

"""Events as Markdown: a conversation to paste into a document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ..text import safe

if TYPE_CHECKING:
    from ..log.event import Event
    from ..log.selection import Selection

_ACTIVE = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&:@$=^])")


def escaped(text: str) -> str:
    """Return one line of text that Markdown shows as it is: no heading, list, link, image, formula, entity or HTML."""
    return _ACTIVE.sub(r"\\\1", safe(text.strip()))


class MarkdownLines:
    """Prints each event as a line of its time, sender and recipient, and its text as a quotation; days are headings."""

    separator = "---\n"

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._day = ""

    def show(self, page: list[Event]) -> None:
        for entry in page:
            day, _, clock = entry.time.partition("T")
            if day != self._day:
                self._day = day
                click.echo(f"## {day}\n")
            pair = [escaped("?" if agent is None else str(agent)) for agent in (entry.from_id, entry.to_id)]
            facts = [] if entry.channel is None else [f"**{' → '.join(pair)}**", escaped(entry.channel)]
            kind = [] if entry.kind == "sent" else [entry.kind]
            click.echo(", ".join([clock[:12], *facts, *kind]) + "\n")
            lines = [escaped(line) for line in self._selection.text_of(entry).splitlines()]
            click.echo("  \n".join(f"> {line}" for line in lines or [""]) + "\n")

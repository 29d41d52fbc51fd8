"""Output of `messager diff`: a comparison, and the summary of runs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ..text import length, plural, safe
from .output import Column, cell, fitted, identifier, note, table

if TYPE_CHECKING:
    from ..log.event import Event
    from ..queries.comparison.result import ChannelCounts, Comparison, Difference
    from ..queries.comparison.run_summary import RunsSummary

COLOURS = {"A": "red", "B": "green", "~": "yellow", ">": "cyan"}
WIDE = 120
"""Columns of a terminal that has room for messages side by side."""
COUNTS = ("equal", "moved", "changed", "only_a", "only_b")
ROWS = 30
"""Rows of a table that are printed."""


def comparison_as_dict(result: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON data."""
    return {
        "equal": result.equal,
        "a": result.a,
        "b": result.b,
        "messages_a": result.messages_a,
        "messages_b": result.messages_b,
        "messages": _counts(result),
        "channels": result.channels,
        "channels_same": result.same,
        "channels_differing": result.differing,
        "redacted": result.redacted,
        "matched": result.matched,
        "absent_paths": result.absent_paths,
        "translated": result.translated,
        "to_exp": None if result.exp_ids is None else result.exp_ids[1],
        "by_channel": [
            {
                **_place(row),
                "messages_a": row.messages_a,
                "messages_b": row.messages_b,
                "messages": _counts(row),
                "by_anchors": row.by_anchors,
            }
            for row in result.by_channel
        ],
        "differences_left_out": result.messages.differing - len(result.differences),
        "differences": [
            {
                **_place(difference),
                "kind": difference.kind,
                "index_a": difference.index_a,
                "index_b": difference.index_b,
                "similarity": difference.similarity,
                "path": difference.path if difference.kind == "changed" else None,
                **{side: _event(getattr(difference, side)) for side in ("a", "b", "before", "a_next", "b_next")},
            }
            for difference in result.differences
        ],
    }


def _counts(of: Comparison | ChannelCounts) -> dict[str, int]:
    return {name: getattr(of.messages, name) for name in COUNTS}


def _place(of: ChannelCounts | Difference) -> dict[str, Any]:
    return {"channel": of.channel, **({"sender": json.loads(of.sender)} if of.sender else {})}


def _event(entry: Event | None) -> dict[str, Any] | None:
    from ..formats.jsonl import event_to_dict

    return None if entry is None else {"cursor": str(entry.cursor), **event_to_dict(entry)}


def show_comparison(result: Comparison, full: bool) -> None:
    """Print a comparison."""
    if result.translated:
        note("one side comes from Redis, the other from MQTT: exps/... means exps:... (--keep-names turns that off)")
    if result.exp_ids:
        a, b = map(safe, result.exp_ids)
        note(f"channels of {a} are compared as channels of {b} (--keep-names turns that off)")
    click.echo(f"{click.style(result.verdict, fg='green' if result.equal else 'red')}  {result.counts}")
    if named := result.by_anchors:
        more = f" and {plural(len(named) - 3, 'more channel')}" if len(named) > 3 else ""
        text = "behind the opening, less than a tenth is on both sides: aligned only by messages that both have once"
        click.secho(f"{', '.join(map(safe, named[:3]))}{more}: {text}", fg="yellow")
    if result.shares_little:
        note("less than a tenth of the messages is equal: --summary compares who said how much to whom, and how fast")
    if not result.differences:
        return
    first, *others = result.differences
    click.echo(f"\n{click.style(first.title, bold=True)}")
    for sign, line in first.lines(full=full):
        _line(sign, line)
    if result.differing > 1:
        click.echo()
        _show_channels(result)
    groups: dict[tuple[str, str], list[Difference]] = {}
    for difference in others:
        groups.setdefault((difference.channel, difference.sender), []).append(difference)
    for (channel, sender), differences in groups.items():
        click.secho(f"\n{safe(channel)}{f', from {safe(sender)}' if sender else ''}", bold=True)
        for difference in differences:
            _show_difference(difference, full)
    _note_shared_paths(result)
    if left := result.messages.differing - len(result.differences):
        click.echo(f"\nand {plural(left, 'more difference')}: see them with -n, --channel or --json")


def _note_shared_paths(result: Comparison) -> None:
    """Print a note of the paths in which most of the changed messages differ only."""
    from ..queries.comparison.shared_paths import shared_paths

    shared = shared_paths(result.differences)
    if shared is None:
        return
    first = "" if shared.changed == result.messages.changed else "first "
    options = " ".join(f"--ignore {quote(path)}" for path in shared.paths)
    note(
        f"{shared.messages:,} of the {first}{shared.changed:,} changed messages differ only in "
        f"{' and '.join(shared.paths)}: {options} compares the rest"
    )


def _show_channels(result: Comparison) -> None:
    """Print the counts of each channel that differs."""
    counts = [Column(name.replace("_", " ").upper(), f"messages.{name}") for name in COUNTS]
    columns = [
        Column("CHANNEL", "channel"),
        *([Column("FROM", "sender")] if result.by_sender else []),
        *(Column("A", "messages_a"), Column("B", "messages_b"), *counts),
    ]
    table(columns, result.by_channel[:ROWS], gives=("CHANNEL",))
    if len(result.by_channel) > ROWS:
        click.echo(f"and {len(result.by_channel) - ROWS:,} more")


def _show_difference(difference: Difference, full: bool) -> None:
    """Print one of several differences of a channel, its messages by their positions."""
    a, b = ("" if index is None else f"{index + 1:,}" for index in (difference.index_a, difference.index_b))
    width = _width()
    if difference.kind != "changed":
        sign, place = {"only_a": ("A", a), "only_b": ("B", b), "moved": (">", f"{a} to {b}")}[difference.kind]
        entry = difference.b if difference.a is None else difference.a
        text = "" if entry is None else safe(entry.text)
        _line(sign, f"{place}  {text if full else _cut(text, width - len(place) - 6)}")
        return
    likeness = f"{difference.similarity or 0:.0%}"
    if width >= WIDE and not full:
        at = a if a == b else f"{a}, {b}"
        half = (width - len(at) - len(likeness) - 13) // 2
        one, other = (fitted(text, half) for text in difference.shown(half))
        click.echo(
            f"  {click.style('~', fg='yellow')} {at}  {click.style(one, fg='red')} | {click.style(other, fg='green')}"
            f"  {click.style(likeness, fg='yellow')}"
        )
        if difference.same_text:
            _line("~", f"{at}  {_cut(difference.place(), width - len(at) - 6)}")
        return
    one, other = difference.shown(max(width - len(a) - len(b) - 6, 20), full=full)
    _line("A", f"{a}  {one if full else _cut(one, width - len(a) - 6)}")
    _line("B", f"{b}  {other if full else _cut(other, width - len(b) - 6)}")
    where = (
        difference.place(full=full) if difference.same_text or full else f"differs in {safe(difference.path or '$')}"
    )
    _line("~", f"{likeness} similar, {where}" if full else _cut(f"{likeness} similar, {where}", width - 4))


def _line(sign: str, text: str) -> None:
    colour = COLOURS.get(sign)
    click.echo(click.style(f"  {sign} {text}", fg=colour, dim=colour is None))


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def _cut(text: str, width: int) -> str:
    """Return text cut to this width."""
    return fitted(text, max(width, 20)).rstrip()


def summary_as_dict(result: RunsSummary) -> dict[str, Any]:
    """Return a summary of runs as JSON data."""
    return {
        "runs": [asdict(run) for run in result.runs],
        "pairs_outside": result.outside,
        "pairs": [
            {**asdict(pair), "outside": pair.outside, "delay_outside_s": pair.delay_outside} for pair in result.pairs
        ],
    }


def show_summary(result: RunsSummary, rows: int) -> None:
    """Print a summary of runs, with at most this number of pairs."""
    *baselines, last = result.runs
    within = click.style("within", fg="green") if not result.outside else click.style("outside", fg="red")
    against = ", ".join(safe(run.exp_id) for run in baselines)
    click.echo(
        f"{within}  {safe(last.exp_id)} against {against}: {result.outside:,} of "
        f"{plural(len(result.pairs), 'pair')} outside of the range of messages\n"
    )
    table(RUNS, result.runs, gives=("RUN",))
    click.echo()
    table(PAIRS, result.pairs[:rows], gives=("CHANNEL", "FROM", "TO"))
    if len(result.pairs) > rows:
        click.echo(f"and {len(result.pairs) - rows:,} more: -n {len(result.pairs)} prints all")


def _range(text: Callable[[Any], str]) -> Callable[[Any], str]:
    def shown(ends: tuple[Any, Any] | None) -> str:
        if ends is None:
            return "-"
        low, high = map(text, ends)
        return low if low == high else f"{low} to {high}"

    return shown


RUNS = (
    Column("RUN", "exp_id"),
    Column("MESSAGES", "messages"),
    Column("DURATION", "duration_s", length),
    Column("CHANNELS", "channels"),
    Column("AGENTS", "agents"),
    Column("OPENING", "opening"),
)
PAIRS = (
    Column("FROM", "from_id", identifier),
    Column("TO", "to_id", identifier),
    Column("CHANNEL", "channel"),
    Column("BEFORE", "range", _range(cell), right=True),
    Column("NOW", "messages", lambda numbers: cell(numbers[-1]), right=True),
    Column("OUTSIDE", "outside", lambda number: f"{number:+,}" if number else ""),
    Column("DELAY BEFORE", "delay_range", _range(length), right=True),
    Column("DELAY NOW", "delays_s", lambda delays: length(delays[-1]), right=True),
)

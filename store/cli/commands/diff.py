"""messager diff"""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ...text import plural, safe
from ..filters import Filters, selection_options
from ..match_options import given_match, match_options
from ..options import asynchronous, json_option, open_log, pairs, store_option
from ..output import note, print_json, table
from ..progress import Progress

if TYPE_CHECKING:
    from ...log.event import Event
    from ...queries.comparison import Comparison, Difference

COLOURS = {"A": "red", "B": "green", "~": "yellow"}


@click.command()
@click.argument("a")
@click.argument("b")
@selection_options
@click.option("--map", "mapping", multiple=True, metavar="OLD=NEW", help="Rename channels of A, as `replay` does.")
@click.option("--to-exp", metavar="ID", help="Treat channels of A as channels of this experiment, as `replay` does.")
@click.option(
    "--keep-names",
    is_flag=True,
    help="Do not translate names if one side comes from Redis and the other from MQTT. By default, exps/... "
    "means exps:... then.",
)
@click.option(
    "--by-sender",
    is_flag=True,
    help="Compare the messages of each sender on a channel on their own; the order between senders does not matter.",
)
@match_options
@click.option("--full", is_flag=True, help="Print long texts completely, not only the part around the difference.")
@click.option("--store-b", metavar="URL", help="The store of B, if it is a different one.")
@store_option
@json_option
@asynchronous
async def command(
    a: str,
    b: str,
    mapping: tuple[str, ...],
    to_exp: str | None,
    keep_names: bool,
    by_sender: bool,
    ignore: tuple[str, ...],
    shape: tuple[str, ...],
    tolerance: float | None,
    bytes_only: bool,
    full: bool,
    store_b: str | None,
    store: str,
    as_json: bool,
    filters: Filters,
) -> None:
    """Compare the payloads of two experiments, channel by channel, in replay order.

    For each channel that differs, the first difference is printed. The lines start with a sign: none for the last
    equal message, A and B for the first different messages, ~ for the place of the difference with both values if the
    messages are JSON, and a and b for the next message on either side.

    If many channels differ, a table comes first: the number of messages in A and in B, and the number of equal
    messages (SAME) before the first difference.

    The filters and POINT are those of `events`. They apply to each side: a POINT is resolved in each experiment,
    --limit counts the messages of each, and --kind compares events of this kind instead of messages.

    Payloads are compared byte for byte. With --ignore, --shape or --tolerance, payloads that are JSON are compared as
    JSON values, in which the order of keys, white space, and 1 for 1.0 make no difference. A PATH that no payload
    has is noted.

    A replay with live agents reproduces the order in which each Messager sent its messages, not the order between
    Messagers: use --by-sender if several of them send on one channel.

    Exit code 0 if nothing differs, 1 if something does.
    """
    from ...queries.compare import compare
    from ...replay import ChannelMap

    renamed = ChannelMap(pairs(mapping, "--map"), to_exp) if mapping or to_exp else None
    match = given_match(ignore, shape, tolerance, bytes_only)
    filters.refuse("last_per", "context", reason="messages are compared in order: leave it out")
    selection = filters.selection()
    async with open_log(store) as log, open_log(store_b or store) as log_b:
        with Progress("comparing", "messages") as progress:
            result = await compare(
                *(log, a, b),
                log_b=log_b,
                selection=selection,
                mapping=renamed,
                keep_names=keep_names,
                match=match,
                by_sender=by_sender,
                progress=progress,
            )
        if result.channels:
            for each, exp in ((log, result.a), (log_b, result.b)):
                await filters.note_unknown(each, await each.experiment(exp))
    if filters.given and not result.channels:
        raise click.UsageError(f"nothing to compare: no message of {result.a} or {result.b} matches the filters")
    if result.absent_paths and result.channels:
        paths = ", ".join(result.absent_paths)
        note(f"no JSON payload that was compared has {paths}: check these paths of --ignore and --shape")
    if as_json:
        print_json(_as_dict(result))
    else:
        _show(result, full)
    if not result.equal:
        raise click.exceptions.Exit(1)


def _as_dict(result: Comparison) -> dict[str, Any]:
    return {
        "equal": result.equal,
        "a": result.a,
        "b": result.b,
        "messages_a": result.messages_a,
        "messages_b": result.messages_b,
        "channels": result.channels,
        "channels_same": result.same,
        "channels_differing": result.differing,
        "redacted": result.redacted,
        "matched": result.matched,
        "absent_paths": result.absent_paths,
        "translated": result.translated,
        "to_exp": None if result.exp_ids is None else result.exp_ids[1],
        "differences": [
            {
                "channel": difference.channel,
                **({"sender": json.loads(difference.sender)} if difference.sender else {}),
                "index": difference.index,
                "path": difference.path,
                "messages_a": difference.messages_a,
                "messages_b": difference.messages_b,
                **{side: _event(getattr(difference, side)) for side in ("before", "a", "b", "a_next", "b_next")},
            }
            for difference in result.differences
        ],
    }


def _event(entry: Event | None) -> dict[str, Any] | None:
    from ...formats.jsonl import event_to_dict

    return None if entry is None else {"cursor": str(entry.cursor), **event_to_dict(entry)}


def _show(result: Comparison, full: bool) -> None:
    from ...queries.comparison import SHOWN

    if result.translated:
        note("one side comes from Redis, the other from MQTT: exps/... means exps:... (--keep-names turns that off)")
    click.echo(f"{click.style(result.verdict, fg='green' if result.equal else 'red')}  {result.counts}")
    if result.exp_ids:
        a, b = map(safe, result.exp_ids)
        hint = f"no channel is on both sides: A has channels of {a}, B of {b}; compare them with --to-exp {quote(b)}"
        click.secho(hint, fg="yellow")
    if result.differing > SHOWN:
        click.echo()
        _show_table(result)
    for difference in result.differences[:SHOWN]:
        _show_difference(difference, full)
    if result.differing > SHOWN:
        click.echo(
            f"\nand {plural(result.differing - SHOWN, f'more {result.unit}')}: see them with --channel or --json"
        )


def _show_table(result: Comparison) -> None:
    """Print, for each channel that differs, the messages of both sides and those before the first difference."""
    senders = [("FROM", "left")] if result.by_sender else []
    table(
        [("CHANNEL", "left"), *senders, ("A", "right"), ("B", "right"), ("SAME", "right")],
        [
            (
                one.channel,
                *((one.sender,) if result.by_sender else ()),
                *(f"{count:,}" for count in (one.messages_a, one.messages_b, one.index)),
            )
            for one in result.differences
        ],
        gives=("CHANNEL",),
    )
    if result.differing > len(result.differences):
        click.echo(f"and {result.differing - len(result.differences):,} more")


def _show_difference(difference: Difference, full: bool) -> None:
    click.echo(f"\n{click.style(difference.title, bold=True)}")
    for sign, line in difference.lines(full=full):
        colour = COLOURS.get(sign)
        click.echo(click.style(f"  {sign} {line}", fg=colour, dim=colour is None))

"""messager diff"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import click

from ..comparison_output import ROWS, comparison_as_dict, show_comparison, show_summary, summary_as_dict
from ..filters import Filters, note_where, selection_options
from ..match_options import match_options
from ..numbers import Whole
from ..options import asynchronous, open_log, output_options, pairs, store_option
from ..output import Form, note, print_data
from ..place import PLACE
from ..progress import Progress

if TYPE_CHECKING:
    from ...log.channel_map import ChannelMap
    from ...log.event_log import EventLog
    from ...matching.match import Match
    from ...queries.comparison.result import Comparison

SHOWN = 20
"""Differences that are printed by default."""
SHOWN_DATA = 1000
"""The same in JSON and CSV."""


@click.command()
@click.argument("a")
@click.argument("b")
@click.argument("more", nargs=-1, metavar="[C ...]")
@selection_options
@click.option("--map", "mapping", multiple=True, metavar="OLD=NEW", help="Rename channels of A, as `replay` does.")
@click.option("--to-exp", metavar="ID", help="Treat channels of A as channels of this experiment, as `replay` does.")
@click.option(
    "--keep-names",
    is_flag=True,
    help="Compare channels by the names that were recorded. By default, channels of A's experiment are compared as "
    "channels of B's, and exps/... means exps:... if one side comes from Redis and the other from MQTT.",
)
@click.option(
    "--by-sender",
    is_flag=True,
    help="Compare the messages of each sender on a channel on their own; the order between senders does not matter.",
)
@match_options
@click.option("--full", is_flag=True, help="Print long texts completely, not only the part around the difference.")
@click.option(
    "-n",
    "--rows",
    type=Whole(min=1),
    metavar="N",
    help=f"At most N differences, or pairs with --summary. All are counted.  [default: {SHOWN} in text, {SHOWN_DATA} "
    "in JSON and CSV]",
)
@click.option(
    "--summary",
    is_flag=True,
    help="Compare figures instead of messages: messages and delays of each pair. The last experiment is compared with "
    "the range of the others.",
)
@click.option("--store-b", type=PLACE, metavar="URL", help="The store of B, if it is a different one.")
@store_option
@output_options
@asynchronous
async def command(
    a: str,
    b: str,
    more: tuple[str, ...],
    mapping: tuple[str, ...],
    to_exp: str | None,
    keep_names: bool,
    by_sender: bool,
    match: Match | None,
    full: bool,
    rows: int | None,
    summary: bool,
    store_b: str | None,
    store: str,
    form: Form,
    filters: Filters,
) -> None:
    """Align the messages of two experiments, channel by channel, by their payloads.

    A message is equal (on both sides, in the same order), moved (equal, but at another place of its channel), changed
    (another message is in its place), only in A, or only in B. The first line has these numbers. The first difference
    in replay order follows, then a table if several channels differ, then the other differences by channel.

    The lines of a difference start with a sign: A and B for the messages of both sides, ~ for how similar they are and
    where they differ, with both values if they are JSON, and > for a moved message. The first difference has the
    message before without a sign, and the next ones as a and b. A wide terminal has changed messages side by side.

    The filters and POINT are those of `events`. They apply to each side: a POINT is resolved in each experiment,
    --limit counts the messages of each, and --kind compares events of this kind instead of messages.

    Payloads are compared byte for byte. With --framework, --ignore, --shape or --tolerance, payloads that are
    JSON are compared as JSON values, in which the order of keys, white space, and 1 for 1.0 make no difference. A PATH
    that no payload has is noted.

    A replay with live agents reproduces the order in which each Messager sent its messages, not the order between
    Messagers: use --by-sender if several of them send on one channel.

    With --summary, A and further experiments are baselines for the last one, whose messages differ each time, as those
    of language models do. Pairs of sender and recipient come first whose messages are most outside of the baselines'
    range. DELAY is the median time that FROM took to answer TO, as `delays --replies` measures it. With --summary,
    --store-b is the store of the last one.

    Exit code 0 if nothing differs, 1 if something does; with --summary, if a number of messages is outside of the
    range.
    """
    from ...replay import ChannelMap

    renamed = ChannelMap(pairs(mapping, "--map"), to_exp) if mapping or to_exp else None
    filters.refuse("last_per", "context", reason="messages are compared in order: leave it out")
    how = _How(renamed, keep_names, match)
    async with open_log(store) as log, open_log(store_b or store) as log_b:
        if summary:
            if by_sender or full:
                raise click.UsageError("--summary counts messages: leave out --by-sender and --full")
            same = await _summary(log, log_b, [a, b, *more], filters, how, form, rows)
        elif more:
            raise click.UsageError(f"{len(more) + 2} experiments: give two, or --summary")
        else:
            details = rows or (SHOWN if form is Form.TABLE else SHOWN_DATA)
            result = await _compared(log, log_b, (a, b), filters, how, by_sender, details)
            same = result.equal
            if form is Form.TABLE:
                show_comparison(result, full)
            else:
                print_data(form, comparison_as_dict(result), result.records())
    if not same:
        raise click.exceptions.Exit(1)


class _How(NamedTuple):
    """How names and payloads are compared."""

    mapping: ChannelMap | None
    keep_names: bool
    match: Match | None


async def _compared(
    log: EventLog, log_b: EventLog, both: tuple[str, str], filters: Filters, how: _How, by_sender: bool, details: int
) -> Comparison:
    """Compare two experiments, with notes on filters and paths that had no effect."""
    from ...queries.comparison.compare import compare

    selection = filters.selection()
    with Progress("comparing", "messages") as progress:
        result = await compare(
            *(log, *both),
            log_b=log_b,
            selection=selection,
            **how._asdict(),
            by_sender=by_sender,
            details=details,
            progress=progress,
        )
    note_where(selection)
    if result.channels:
        for each, exp in ((log, result.a), (log_b, result.b)):
            await filters.note_unknown(each, await each.experiment(exp))
    elif filters.given:
        raise click.UsageError(f"nothing to compare: no message of {result.a} or {result.b} matches the filters")
    if result.absent_paths and result.channels:
        paths = ", ".join(result.absent_paths)
        note(f"no JSON payload that was compared has {paths}: check these paths of --ignore and --shape")
    return result


async def _summary(
    log: EventLog, log_last: EventLog, runs: list[str], filters: Filters, how: _How, form: Form, rows: int | None
) -> bool:
    """Print the summary of runs. Return whether the last one is within the range of the others."""
    from ...queries.comparison.run_summary import summarise

    selection = filters.selection()
    with Progress("reading", "messages") as progress:
        result = await summarise(log, *runs, log_last=log_last, selection=selection, **how._asdict(), progress=progress)
    note_where(selection)
    for each, run in zip([log] * (len(runs) - 1) + [log_last], result.runs, strict=True):
        await filters.note_unknown(each, await each.experiment(run.exp_id))
    if filters.given and not result.pairs:
        raise click.UsageError("nothing to compare: no message of these experiments matches the filters")
    if form is Form.TABLE:
        show_summary(result, rows or ROWS)
    else:
        shown = replace(result, pairs=result.pairs[:rows])
        print_data(form, summary_as_dict(shown) | {"pairs_outside": result.outside}, shown.records())
    return not result.outside

"""messager prune"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ...text import plural
from ..options import asynchronous, confirm, json_option, open_log, store_option
from ..output import note, print_json
from .rm import note_forks, remove_all, show

if TYPE_CHECKING:
    from ...queries.retention import Usage


@click.command()
@click.option(
    "--older-than",
    required=True,
    metavar="TIME",
    help="Minimum age, counted from the end, with a unit: 30d, 12h.",
)
@click.option("--keep-tag", "keep", multiple=True, metavar="TAG", help="Keep experiments with this tag.")
@click.option("--open", "with_open", is_flag=True, help="Also remove open experiments without a running recorder.")
@click.option("--dry-run", is_flag=True, help="Only list the experiments.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
@json_option
@asynchronous
async def command(
    older_than: str, keep: tuple[str, ...], with_open: bool, dry_run: bool, yes: bool, store: str, as_json: bool
) -> None:
    """Remove experiments that ended long ago. Lists them first, and asks.

    A closed experiment ended when it was closed; an open one ended at the last heartbeat of its recorders. An
    unpacked experiment keeps the times of the original. An experiment with events in a spool is not removed.
    """
    from ...log.cursor import duration_ns

    try:
        if not older_than.strip()[-1:].isalpha():
            raise ValueError
        before = time.time_ns() - duration_ns(older_than)
    except ValueError:
        raise click.UsageError(
            f"--older-than takes a duration with a unit, such as 30d or 1.5h, not {older_than!r}"
        ) from None
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json cannot ask for confirmation: add --dry-run or --yes")
    from ...queries.retention import outdated

    async with open_log(store) as log:
        known = {word for each in await log.experiments() for word in each.tags}
        for word in keep:
            if word not in known:
                raise click.UsageError(
                    f"--keep-tag: no experiment has the tag {word!r}, so it would keep none. Check the spelling"
                )
        found, left_open = await outdated(log, before, keep_tags=keep, with_open=with_open)
        if left_open and not as_json:
            note(f"{plural(left_open, 'open experiment')} just as old: add --open to remove them, too")
        for each in found:
            if each.spool:
                exp_id = each.experiment.exp_id
                note(f"not removed: {exp_id} has events in {each.spool}; `messager drain` copies them into the store")
        found = [each for each in found if not each.spool]
        gone: list[Usage] = []
        await note_forks(log, found)
        if not found:
            note(f"nothing to remove in {log.location}")
        elif dry_run:
            if not as_json:
                show(found)
        else:
            question = f"Remove {plural(len(found), 'experiment')} from {log.location}?"
            confirm(question, yes, "nothing was removed", lambda: show(found))
            gone = await remove_all(log, found, force=False, if_unchanged=True, quiet=as_json)
    if as_json:
        print_json([_entry(each, removed=each in gone) for each in found])


def _entry(each: Usage, *, removed: bool) -> dict[str, Any]:
    from ...log.event import iso

    return {
        "exp_id": each.experiment.exp_id,
        "name": each.experiment.name,
        "tags": each.experiment.tags,
        "status": each.experiment.status,
        "begun_at": iso(each.begun_at),
        "ended_at": iso(each.last_at),
        "events": each.events,
        "payload_bytes": each.payload_bytes,
        "bytes": each.bytes,
        "removed": removed,
    }

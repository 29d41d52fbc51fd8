"""messager prune"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ...text import plural
from ..options import confirmed, json_option, opened, run, store_option
from ..output import note, print_json
from .rm import remove_all, show

if TYPE_CHECKING:
    from ...maintenance.retention import Usage


@click.command()
@click.option(
    "--older-than", required=True, metavar="TIME", help="How long ago it must have ended, with a unit: 30d, 12h."
)
@click.option("--keep-tag", "keep", multiple=True, metavar="TAG", help="But none with this tag.")
@click.option("--open", "with_open", is_flag=True, help="Also open ones, where no recorder runs.")
@click.option("--dry-run", is_flag=True, help="Only list them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@json_option
def command(
    older_than: str, keep: tuple[str, ...], with_open: bool, dry_run: bool, yes: bool, store: str, as_json: bool
) -> None:
    """Remove experiments that ended long ago. Lists them first, and asks.

    A closed experiment ended when it was closed, an open one when a recorder last showed that it
    was alive. One that was unpacked is as old as it was where it was recorded. One whose events
    wait in a spool is left out.
    """
    from ...log.cursor import duration_ns

    try:
        if not older_than.strip()[-1:].isalpha():
            raise ValueError
        before = time.time_ns() - duration_ns(older_than)
    except ValueError:
        raise click.UsageError(
            f"--older-than takes a time with its unit, such as 30d or 1.5h, not {older_than!r}"
        ) from None
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json asks nothing: say --dry-run or --yes as well")
    run(_prune(before, keep, with_open, dry_run, yes, store, as_json))


async def _prune(
    before: int, keep: tuple[str, ...], with_open: bool, dry_run: bool, yes: bool, store: str, as_json: bool
) -> None:
    from ...experiments.registry import every
    from ...maintenance.retention import outdated

    async with opened(store) as log:
        known = {word for each in await every(log.database) for word in each.tags}
        for word in keep:
            if word not in known:
                raise click.UsageError(f"--keep-tag: no experiment has the tag {word!r}, so it keeps none")
        found, left_open = await outdated(log, before, keep_tags=keep, with_open=with_open)
        if left_open and not as_json:
            note(f"{plural(left_open, 'open experiment')} just as old: `messager close`, or --open, includes them")
        for each in found:
            if each.spool:
                exp_id = each.experiment.exp_id
                note(f"left out: events of {exp_id} wait in {each.spool}; `messager drain` stores them")
        found = [each for each in found if not each.spool]
        gone: list[Usage] = []
        if not found:
            note(f"nothing to remove in {log.location}")
        elif dry_run:
            if not as_json:
                show(found)
        else:
            question = f"Remove {plural(len(found), 'experiment')} from {log.location}?"
            confirmed(question, yes, "nothing was removed", lambda: show(found))
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

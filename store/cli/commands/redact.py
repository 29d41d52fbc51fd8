"""messager redact"""

from __future__ import annotations

import getpass
import sys
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ...log.typed_ids import typed_ids
from ...text import plural, safe
from ..options import ask, asynchronous, open_log, store_option
from ..output import note
from ..progress import Progress

if TYPE_CHECKING:
    from ...privacy.copies import Copies
    from ...privacy.redaction import Redaction
    from ...privacy.redaction_filter import RedactionFilter

SHOWN = 5
"""Number of channels that are listed before the question."""
_FINISHED = "an earlier redaction was interrupted before the file was rewritten: the file is rewritten now"
_FIELDS = {
    "channel": "channels",
    "agent": "agents",
    "from": "senders",
    "to": "recipients",
    "kind": "kinds",
    "cursor": "cursors",
    "since": "since",
    "until": "until",
    "contains": "contains",
    "matches": "matches",
    "redacted-in": "redacted_in",
}


@click.command()
@click.argument("exp", required=False)
@click.option(
    "--where",
    "words",
    multiple=True,
    metavar="KEY=VALUE",
    help="Select events. All conditions must hold.",
)
@click.option("--why", metavar="TEXT", help="The reason, stored with the experiment.")
@click.option("--who", metavar="NAME", help="Who redacts, stored with the experiment. [default: the current user]")
@click.option("--ids", is_flag=True, help="Also erase senders, recipients, and unused names of agents.")
@click.option("--dry-run", is_flag=True, help="Only list what would be erased.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--meta", is_flag=True, help="Instead, mask credentials in the meta of EXP and its recorders.")
@click.option("--scrub", is_flag=True, help="Only rewrite the file, after an earlier redaction that could not.")
@store_option
@asynchronous
async def command(
    exp: str | None,
    words: tuple[str, ...],
    why: str | None,
    who: str | None,
    ids: bool,
    dry_run: bool,
    yes: bool,
    meta: bool,
    scrub: bool,
    store: str,
) -> None:
    """Erase the payloads of events permanently, with their hashes and every copy in the file.

    KEY is channel (a glob), agent, from, to (ids as for `events`), kind, cursor, since, until (a POINT as for
    `events`), contains (text, also inside JSON), matches (a regular expression) or redacted-in (a fork or the parent
    of EXP: the events that are redacted there).

    The events remain, with time, channel and, without --ids, sender and recipient. The head of the experiment
    changes. Who redacted which events, when and why is recorded. One message may be several events, one sent and one
    received per recorder; `contains` finds all of them.

    --meta masks values that look like credentials (a password, a token, the user in a URL) in the meta of the
    experiment and of its recorders, such as their command lines; `verify` lists them. The head covers the meta of
    recorders that have ended, so it changes if one of these had any; this is not recorded as a redaction.

    The whole file is rewritten, which takes time and the same amount of free space. Exit code 1 if no event matches.
    """
    if scrub:
        if exp or words or why or who or ids or dry_run or meta:
            raise click.UsageError("--scrub rewrites the whole file: combine it with --store only")
        await _scrub(store)
        return
    if not exp:
        raise click.UsageError("name an experiment, or give --scrub")
    if meta:
        if words or why or who or ids:
            raise click.UsageError("--meta masks all credentials: combine it with --dry-run and --yes only")
        _may_ask(dry_run, yes)
        if not await _mask_meta(exp, dry_run, yes, store):
            raise click.exceptions.Exit(1)
        return
    if not words:
        raise click.UsageError("select events with --where KEY=VALUE")
    where = where_of(words)
    if not dry_run and not (why or "").strip():
        raise click.UsageError("give the reason with --why: it is stored with the experiment")
    _may_ask(dry_run, yes)
    if not await _redact(exp, where, who or _user(), why or "", ids, dry_run, yes, store):
        raise click.exceptions.Exit(1)


def _may_ask(dry_run: bool, yes: bool) -> None:
    if not (dry_run or yes or sys.stdin.isatty()):
        raise click.UsageError("redacting asks for confirmation, and there is no terminal to ask on: add --yes")


def where_of(words: tuple[str, ...]) -> RedactionFilter:
    """Return the filter that `--where` words describe."""
    from ...privacy.redaction_filter import RedactionFilter

    given: dict[str, list[Any]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in _FIELDS:
            raise click.UsageError(f"--where has no key {key!r}: use {', '.join(_FIELDS)}")
        if not equals or not value:
            raise click.UsageError(f"--where takes KEY=VALUE, not {word!r}")
        condition = tuple(typed_ids(value)) if key in ("agent", "from", "to") else value
        given.setdefault(_FIELDS[key], []).append(condition)
    return RedactionFilter(**{field: tuple(values) for field, values in given.items()})


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container without a user table
        return "unknown"


async def _redact(
    exp: str, chosen: RedactionFilter, who: str, why: str, ids: bool, dry_run: bool, yes: bool, store: str
) -> bool:
    from ...privacy.redaction import redact
    from ...privacy.refusal import check_reason
    from ...privacy.scrubbing import finish_scrub

    if not dry_run:  # before the question
        check_reason(chosen, who=who, why=why)
    async with open_log(store) as log:
        of = await log.experiment(exp)
        with Progress("searching") as progress:
            planned = await redact(log, of, chosen, who=who, why=why, ids=ids, dry_run=True, progress=progress)
        if not planned.events and not planned.done_before:
            if not dry_run and await finish_scrub(log):
                note(_FINISHED)
            click.echo(safe(f"no event of {of.exp_id} matches: nothing to redact"))
            return False
        if planned.events:
            _preview(planned)
        if dry_run:
            return True
        if planned.events and not yes and not ask("Erase them permanently?"):
            if await finish_scrub(log):
                note(_FINISHED)
            click.echo("nothing was redacted")
            return False
        if planned.events:
            note(f"erasing them, and rewriting {log.location} ...")
        done = await redact(log, of, chosen, who=who, why=why, ids=ids)
    if done.events:
        click.echo(safe(f"redacted {plural(done.events, 'event')} of {of.exp_id}; its head is {done.head_after}"))
        note(safe(f"its text and deliveries in SQL are empty now: `messager index {quote(of.exp_id)}` fills them"))
    else:
        many = plural(done.done_before, "event")
        click.echo(safe(f"nothing to do: {many} of {of.exp_id} that match were redacted before"))
    for copies in done.copies:
        command = f"messager redact {quote(copies.exp_id)} --where {quote('redacted-in=' + of.exp_id)}"
        more = " --ids" if ids else ""
        note(f"{_held(copies, of.exp_id)}: `{command} --why {quote(why)}{more}` redacts them there")
    return True


def _held(copies: Copies, exp_id: str) -> str:
    what = f"a fork of {exp_id}, holds copies" if copies.is_fork else f"the parent of {exp_id}, holds the originals"
    return f"{copies.exp_id}, {what} of {copies.events:,} of them"


def _preview(planned: Redaction) -> None:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in planned.kinds.items())
    note(f"{plural(planned.events, 'event')} of {planned.exp_id} would be erased ({kinds}), on")
    for channel, count in list(planned.channels.items())[:SHOWN]:
        note(f"  {channel}: {count:,}")
    if len(planned.channels) > SHOWN:
        note(f"  and {len(planned.channels) - SHOWN:,} more channels")
    if planned.done_before:
        note(f"{planned.done_before:,} more match and were redacted before")
    for copies in planned.copies:
        note(f"{_held(copies, planned.exp_id)}, which remain")


async def _mask_meta(exp: str, dry_run: bool, yes: bool, store: str) -> bool:
    from ...log.chain import head_of
    from ...privacy.meta_credentials import mask_meta

    async with open_log(store) as log:
        of = await log.experiment(exp)
        found = await mask_meta(log, of, dry_run=True)
        if found:
            note(f"{plural(len(found), 'credential')} in the meta of {of.exp_id} would be masked:")
        for place in found:
            note(f"  {place}")
        if dry_run and found:
            return True
        if found and not yes and not ask("Mask them permanently?"):
            click.echo("nothing was masked")
            return False
        if not dry_run:
            await mask_meta(log, of)
            head = head_of(await log.recorders(of))
    if found:
        click.echo(safe(f"masked {plural(len(found), 'credential')} in the meta of {of.exp_id}; its head is {head}"))
    else:
        click.echo(safe(f"the meta of {of.exp_id} holds no credentials: nothing to mask"))
    return bool(found)


async def _scrub(store: str) -> None:
    from ...privacy.scrubbing import scrub

    async with open_log(store) as log:
        await scrub(log)
        where = log.location
    click.echo(safe(f"rewrote {where}: no deleted or redacted data remains in it"))

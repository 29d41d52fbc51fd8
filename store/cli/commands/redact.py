"""messager redact"""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Any

import click

from ...text import plural, safe
from ..options import agent_ids, ask, opened, run, store_option
from ..output import Progress, note

if TYPE_CHECKING:
    from ...privacy.redaction import Redaction
    from ...privacy.redaction_filter import RedactionFilter

SHOWN = 5
"""Channels that the question names."""
_FINISHED = "an earlier redaction was cut off before the file was rewritten: that is done now"
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
}


@click.command()
@click.argument("exp", required=False)
@click.option("--where", "words", multiple=True, metavar="KEY=VALUE", help="Which events. All given must hold.")
@click.option("--why", metavar="TEXT", help="Kept with the experiment.")
@click.option("--who", metavar="NAME", help="Kept too. [default: the user who runs this]")
@click.option("--ids", is_flag=True, help="Also who spoke to whom, and names of agents that no event needs any more.")
@click.option("--dry-run", is_flag=True, help="Only say what it would blank.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--meta", is_flag=True, help="Instead: mask credentials in the meta of EXP and its recorders.")
@click.option("--scrub", is_flag=True, help="Only rewrite the file, where an earlier redaction could not.")
@store_option
def command(
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
    """Blank what events said, for good: payloads, their hashes, and every copy in the file.

    KEY is channel (a glob), agent, from, to (ids as for `events`), kind, cursor, since, until (points),
    contains (text, also inside JSON) or matches (a regular expression). That events happened, when, on
    which channel and, without --ids, between whom stays. The experiment's head changes; who, when,
    why and which events is written down. The same message may be there several times: sent, and received
    by each recorder. `contains` finds them all.

    --meta masks what looks like a credential (a password, a token, a URL's user) in the meta of the experiment and of
    its recorders, such as their command lines; `verify` names it. The head stays.

    The whole file is rewritten, which takes time and as much free space again. Exit code 1 where nothing fits.
    """
    if scrub:
        if exp or words or why or who or ids or dry_run or meta:
            raise click.UsageError("--scrub goes with --store alone: it rewrites the whole file")
        run(_scrub(store))
        return
    if not exp:
        raise click.UsageError("name an experiment")
    if meta:
        if words or why or who or ids:
            raise click.UsageError(
                "--meta goes with --dry-run and --yes alone: it masks every credential that it finds"
            )
        _may_ask(dry_run, yes)
        if not run(_mask_meta(exp, dry_run, yes, store)):
            raise click.exceptions.Exit(1)
        return
    if not words:
        raise click.UsageError("say which events with --where KEY=VALUE")
    where = where_of(words)
    if not dry_run and not (why or "").strip():
        raise click.UsageError("say why with --why: it is kept with the experiment")
    _may_ask(dry_run, yes)
    if not run(_redact(exp, where, who or _user(), why or "", ids, dry_run, yes, store)):
        raise click.exceptions.Exit(1)


def _may_ask(dry_run: bool, yes: bool) -> None:
    if not (dry_run or yes or sys.stdin.isatty()):
        raise click.UsageError("redacting asks first, and there is no terminal to ask on: say --yes")


def where_of(words: tuple[str, ...]) -> RedactionFilter:
    """`--where` words as the library takes them."""
    from ...privacy.redaction_filter import RedactionFilter

    given: dict[str, list[Any]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in _FIELDS:
            raise click.UsageError(f"--where has no key {key!r}: there are {', '.join(_FIELDS)}")
        if not equals or not value:
            raise click.UsageError(f"--where takes KEY=VALUE, not {word!r}")
        condition = tuple(agent_ids((value,))) if key in ("agent", "from", "to") else value
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
    async with opened(store) as log:
        of = await log.experiment(exp)
        with Progress("looked at") as progress:
            planned = await redact(log, of, chosen, who=who, why=why, ids=ids, dry_run=True, progress=progress)
        if not planned.events and not planned.done_before:
            if not dry_run and await finish_scrub(log):
                note(_FINISHED)
            click.echo(safe(f"no event of {of.exp_id} fits: nothing to redact"))
            return False
        if planned.events:
            _preview(planned)
        if dry_run:
            return True
        if planned.events and not yes and not ask("Blank them for good?"):
            if await finish_scrub(log):
                note(_FINISHED)
            click.echo("nothing was redacted")
            return False
        if planned.events:
            note(f"blanking them, and rewriting {log.location} ...")
        done = await redact(log, of, chosen, who=who, why=why, ids=ids)
    if done.events:
        click.echo(safe(f"redacted {plural(done.events, 'event')} of {of.exp_id}; its head is {done.head_after}"))
    else:
        many = plural(done.done_before, "event")
        click.echo(safe(f"nothing to do: {many} of {of.exp_id} that fit were redacted before"))
    return True


def _preview(planned: Redaction) -> None:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in planned.kinds.items())
    note(f"{plural(planned.events, 'event')} of {planned.exp_id} would be blanked ({kinds}), on")
    for channel, count in list(planned.channels.items())[:SHOWN]:
        note(f"  {channel}: {count:,}")
    if len(planned.channels) > SHOWN:
        note(f"  and {len(planned.channels) - SHOWN:,} more channels")
    if planned.done_before:
        note(f"{planned.done_before:,} more fit and were redacted before")


async def _mask_meta(exp: str, dry_run: bool, yes: bool, store: str) -> bool:
    from ...privacy.meta_credentials import mask_meta

    async with opened(store) as log:
        of = await log.experiment(exp)
        found = await mask_meta(log, of, dry_run=True)
        if found:
            note(f"{plural(len(found), 'credential')} in the meta of {of.exp_id} would be masked:")
        for place in found:
            note(f"  {place}")
        if dry_run and found:
            return True
        if found and not yes and not ask("Mask them for good?"):
            click.echo("nothing was masked")
            return False
        if not dry_run:
            await mask_meta(log, of)
    if found:
        click.echo(safe(f"masked {plural(len(found), 'credential')} in the meta of {of.exp_id}; its head stays"))
    else:
        click.echo(safe(f"no meta of {of.exp_id} holds a credential: nothing to mask"))
    return bool(found)


async def _scrub(store: str) -> None:
    from ...privacy.scrubbing import scrub

    async with opened(store) as log:
        await scrub(log)
        where = log.location
    click.echo(safe(f"rewrote {where}: nothing that was deleted or redacted is in it any more"))

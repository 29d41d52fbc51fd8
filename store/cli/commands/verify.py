"""messager verify"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ...text import plural, safe
from ..options import asynchronous, json_option, open_log, store_option
from ..output import note, print_json
from ..progress import Progress

if TYPE_CHECKING:
    from ...maintenance.verdict import Verdict


@click.command()
@click.argument("exp", required=False)
@click.option("--all", "every", is_flag=True, help="Verify every experiment, and the rest of the store.")
@click.option("--head", metavar="HASH", help="Also check that its head is HASH.")
@click.option(
    "--projection", is_flag=True, help="Also make the projection anew, and compare it with what answers questions."
)
@store_option
@json_option
@asynchronous
async def command(exp: str | None, every: bool, head: str | None, projection: bool, store: str, as_json: bool) -> None:
    """Verify an experiment: sequence numbers, counters, digests, hash chains, recorders and indexes.

    Exit code 1 if a check fails; each line names the fault and its place. Give a head that was kept elsewhere: who
    rewrites a log computes a new head, too.
    """
    if (exp is None) == (not every):
        raise click.UsageError("name one experiment, or give --all")
    if head is not None and exp is None:
        raise click.UsageError("--head needs the name of one experiment")
    checked_head(head)
    from ...errors import DamagedStore

    try:
        verdicts = await _verify(exp, head, projection, store, as_json)
    except DamagedStore as error:  # a negative answer (exit code 1), not wrong use
        raise click.ClickException(str(error)) from None
    if as_json:
        found = [{**asdict(verdict), "ok": verdict.ok} for verdict in verdicts]
        print_json(found if every else found[0])
    if not all(verdict.ok for verdict in verdicts):
        raise click.exceptions.Exit(1)


def checked_head(head: str | None) -> str | None:
    """Return a head, or its beginning, as typed. Raise `UsageError` if it cannot be one."""
    if head is not None and not re.fullmatch(r"[0-9a-f]{8,64}", head):
        raise click.UsageError(f"{head!r} is not a head: give 64 hexadecimal digits, or at least the first 8")
    return head


async def _verify(exp: str | None, head: str | None, projection: bool, store: str, quiet: bool) -> list[Verdict]:
    from ...maintenance.verify import STORE, verify, verify_all
    from ...projection.checking import check

    verdicts = []
    async with open_log(store) as log:
        with Progress("verifying") as progress:
            if exp is None:
                async for verdict in verify_all(log, progress):
                    if projection and verdict.exp_id != STORE:
                        verdict.add(await check(log, await log.experiment(verdict.exp_id), progress))
                    progress.clear()
                    verdicts.append(verdict)
                    if not quiet:
                        show(verdict)
            else:
                of = await log.experiment(exp)
                verdicts.append(await verify(log, of, head, progress=progress))
                if projection:
                    verdicts[0].add(await check(log, of, progress))
        if exp is not None and not quiet:
            show(verdicts[0])
        if not verdicts and not quiet:
            click.echo("there are no experiments to verify")
        elif not quiet and not projection:
            note("not checked: the projections, which are computed from the events: --projection")
    return verdicts


def show(verdict: Verdict) -> None:
    """Print one line for the experiment, and one for each fault and remark."""
    mark = click.style("ok ", fg="green") if verdict.ok else click.style("BAD", fg="red", bold=True)
    nouns = ((verdict.events, "event"), (verdict.batches, "batch"), (verdict.recorders, "recorder"))
    counts = ", ".join(plural(number, word) for number, word in nouns)
    click.echo(f"{mark}  {safe(verdict.exp_id)}  {counts}" + (f"  head {verdict.head}" if verdict.head else ""))
    for problem in verdict.problems:
        click.echo(f"     {click.style('wrong', fg='red')}  {safe(problem)}")
    if verdict.more_problems:
        click.echo(f"     and {verdict.more_problems} more")
    for remark in verdict.notes:
        click.echo(f"     {click.style('note', fg='cyan')}   {safe(remark)}")

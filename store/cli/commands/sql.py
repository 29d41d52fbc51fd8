"""messager sql"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

from ...text import plural, safe
from ..numbers import Whole
from ..options import asynchronous, open_log, output_options, store_option
from ..output import Csv, Form, facts, note, print_data
from ..progress import Progress
from ..sql_output import JsonLines, Output, Table

if TYPE_CHECKING:
    from ...errors import StatementFailed

SHOWN = 100
"""Rows of a table, unless -n is given."""


class _Sql(click.Command):
    """The verb, with a hint for a statement that looks like an option because it begins with a comment."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for word in args[: args.index("--") if "--" in args else None]:
            if word.startswith("--") and any(char.isspace() for char in word.partition("=")[0]):
                raise click.UsageError(
                    "a statement that begins with -- looks like an option: put -- before it, as a word of its own, or "
                    "give the statement on standard input, as -",
                    ctx,
                )
        return super().parse_args(ctx, args)


@click.command(cls=_Sql)
@click.argument("exp")
@click.argument("statement", required=False)
@click.option(
    "-n",
    "--limit",
    type=Whole(min=0),
    metavar="N",
    help=f"At most N rows.  [default: {SHOWN} in a table, all in CSV and JSON]",
)
@click.option(
    "--timeout",
    type=float,
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit of the statement, with the reading of its result.",
)
@store_option
@output_options
@asynchronous
async def command(exp: str, statement: str | None, limit: int | None, timeout: float, store: str, form: Form) -> None:
    """Run one SQL statement about an experiment, in DuckDB. It can only read.

    The views messages, events, deliveries, marks and gaps hold this experiment. Without STATEMENT, the views and their
    columns are listed; if it is -, it is read from standard input. --json prints one JSON object per row.
    """
    from ...errors import StatementFailed
    from ...projection.query import views
    from ...projection.sql import open_sql, pages_of

    if statement == "-":
        statement = sys.stdin.read()
    output: Output = Table() if form is Form.TABLE else Csv() if form is Form.CSV else JsonLines()
    left = SHOWN if limit is None and form is Form.TABLE else limit
    more = False
    async with open_log(store) as log:
        of = await log.experiment(exp)
        if statement is None:
            _list_views(form, views())
            return
        try:
            with Progress(f"reading {safe(of.exp_id)}") as progress:
                async with open_sql(log, of, statement, timeout_s=timeout, progress=progress) as result:
                    progress.clear()
                    output.begin(result.columns)
                    async for page in pages_of(result, None if left is None else left + 1):
                        more = left is not None and len(page) > left
                        output.add(page[:left])
                        left = None if left is None else left - len(page)
        except StatementFailed as error:
            _show_place(error)
            raise
    output.end()
    if more and isinstance(output, Table):
        note(f"the first {plural(output.count, 'row')}; there are more: -n N, --csv or --json prints them")


def _list_views(form: Form, views: dict[str, list[str]]) -> None:
    if form is Form.TABLE:
        facts([(view, ", ".join(columns)) for view, columns in views.items()])
    else:
        print_data(form, views, [{"view": view, "column": column} for view in views for column in views[view]])


def _show_place(error: StatementFailed) -> None:
    """Print the line of the statement that is wrong, with a mark below the place."""
    from rich.cells import cell_len

    if error.position is None:
        return
    before, after = error.statement[: error.position], error.statement[error.position :]
    left, right = safe(before.rpartition("\n")[2]), safe(after.partition("\n")[0])
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 100
    left = left[-(width // 2) :]
    click.echo(f"  {left}{right[: max(width - cell_len(left) - 3, 10)]}", err=True)
    click.echo(f"  {' ' * cell_len(left)}^", err=True)

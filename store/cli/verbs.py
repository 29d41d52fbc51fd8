"""The table of verbs. A new verb is one module in `commands` and one line here."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import click


class Verb(NamedTuple):
    """A verb as the help of `messager` lists it. Its module in `commands` has the same name."""

    section: str
    name: str
    help: str


VERBS = {
    verb.name: verb
    for verb in (
        Verb("Try it", "demo", "Run a small society of agents, record it, replay it, check it."),
        Verb("Record", "run", "Run a program, and record what its agents say."),
        Verb("Record", "record", "Record a running system by subscribing to its channels."),
        Verb("Record", "import", "Import a JSON Lines file as a new experiment."),
        Verb("Record", "gather", "Merge what several stores recorded of an experiment."),
        Verb("Read", "ls", "List the experiments of a store."),
        Verb("Read", "info", "Describe one experiment."),
        Verb("Read", "events", "Print the events of an experiment, or follow them."),
        Verb("Analyse", "count", "Count messages: who talks to whom, on which channel, when."),
        Verb("Analyse", "delays", "Show delivery times, or who answers whom how fast."),
        Verb("Analyse", "problems", "Report what never arrived, arrived twice or late, failed, and gaps."),
        Verb("Analyse", "diff", "Compare two experiments, channel by channel."),
        Verb("Analyse", "report", "Write an experiment as one HTML file to look at, offline."),
        Verb("Analyse", "view", "Serve the same page on this machine, live while an experiment is recorded."),
        Verb("Analyse", "sql", "Run an SQL statement about an experiment; it can only read."),
        Verb("Analyse", "export", "Export an experiment to a file: JSON Lines, Parquet, CSV or MCAP."),
        Verb("Replay", "replay", "Publish the messages of an experiment again, in timestamp order."),
        Verb("Replay", "reproduce", "Run a recorded program again, offline, and compare it word for word."),
        Verb("Replay", "fork", "Repeat an experiment up to a point, and continue differently."),
        Verb("Manage experiments", "tag", "Add tags to an experiment, or remove them."),
        Verb("Manage experiments", "close", "Close an experiment, so that it accepts no more events."),
        Verb("Manage experiments", "verify", "Verify sequence numbers, counters and hash chains."),
        Verb("Manage experiments", "redact", "Erase the payloads of selected events permanently."),
        Verb("Manage experiments", "pack", "Write an experiment to one file, including its hash chain."),
        Verb("Manage experiments", "unpack", "Restore an experiment from a pack, and verify it."),
        Verb("Recover from a crash", "drain", "Copy the events of left-over spools into the store."),
        Verb("Recover from a crash", "repair", "End recorders that a crash left open; report possible losses."),
        Verb("Maintain the store", "status", "Report recorders, spools, disk space and problems."),
        Verb("Maintain the store", "rm", "Remove experiments."),
        Verb("Maintain the store", "prune", "Remove experiments that ended long ago."),
        Verb("Maintain the store", "compact", "Return the space of removed experiments to the disk."),
        Verb("Maintain the store", "hook", "Reach programs that ignore PYTHONPATH with `messager run`."),
        Verb("Maintain the store", "cache", "Show the projections that answer questions, or delete them."),
        Verb("Maintain the store", "db", "Migrate a store: upgrade, downgrade, current, history, check."),
    )
}


def sections() -> dict[str, list[Verb]]:
    """The verbs by section, both in the order of the table."""
    found: dict[str, list[Verb]] = {}
    for verb in VERBS.values():
        found.setdefault(verb.section, []).append(verb)
    return found


class Verbs(click.Group):
    """A click group that imports the module of a verb when the verb is used; its own help imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f".commands.{cmd_name}", __package__).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"there is no verb {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb. An error in the form of its options, which click reports without a place, is one of this verb."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if error.ctx is None and ctx.invoked_subcommand is not None:
                error.ctx = click.Context(click.Command(None), ctx, info_name=ctx.invoked_subcommand)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, verbs in sections().items():
            with formatter.section(section):
                formatter.write_dl([(click.style(verb.name.ljust(8), fg="cyan"), verb.help) for verb in verbs])

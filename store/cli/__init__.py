"""The command line, `messager`: one module a verb, each a thin call of a library function.

Exit codes: 0 done, 1 a negative answer, 2 wrong use or bad input, 3 store or broker out
of reach, or standard output that takes no more, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from importlib import import_module
from typing import Any

import click

SECTIONS = {
    "Try it": ("demo",),
    "Record": ("record", "import"),
    "Find and read": ("ls", "info", "events"),
    "Put back and compare": ("replay", "diff", "export"),
    "Keep": ("tag", "close", "verify", "redact", "pack", "unpack"),
    "After a crash": ("drain", "repair"),
    "Keep house": ("status", "rm", "prune", "compact", "db"),
}

HELP = {
    "demo": "Run a small society of agents, record it, replay it, check it.",
    "record": "Record a running system from outside, by listening.",
    "import": "Read a JSON Lines file into a new experiment.",
    "ls": "List experiments.",
    "info": "Describe one experiment.",
    "events": "Print the events of an experiment, or follow them.",
    "replay": "Publish a stored experiment again, in timestamp order.",
    "diff": "Compare two experiments, channel by channel.",
    "export": "Write an experiment to a JSON Lines file.",
    "tag": "Put tags on an experiment, or take them off.",
    "close": "Close an experiment: it takes no more events.",
    "verify": "Check every promise of the log again.",
    "pack": "Put an experiment into one file, with the chain inside.",
    "unpack": "Make the same experiment of a pack, and check it.",
    "drain": "Put what recorders left in their spools into the store.",
    "repair": "Close what a crash left open, and say what may be missing.",
    "redact": "Blank what events said, for good.",
    "status": "Say who records, what waits, and what needs you.",
    "rm": "Remove experiments.",
    "prune": "Remove experiments that ended long ago.",
    "compact": "Give the room of what was removed back to the disk.",
    "db": "Migrate a store: upgrade, downgrade, current, history, check.",
}


class Verbs(click.Group):
    """Loads a verb's module when the verb is used, so that help needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verbs in SECTIONS.values() for verb in verbs]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in HELP:
            return None
        module = import_module(f".commands.{cmd_name}", __name__)
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in HELP and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], HELP, n=1)
            hint = f". Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"there is no verb {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, verbs in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(click.style(verb.ljust(8), fg="cyan"), HELP[verb]) for verb in verbs])


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each verb has its own --help. An experiment is named by its exp_id, a unique prefix of it, "
    "its name, or @last. Exit codes: 0 done, 1 a negative answer, 2 wrong use or bad input, "
    "3 store or broker out of reach, or an output that takes no more, 130 interrupted. "
    "NO_COLOR=1 takes the colours away.",
)
@click.option(
    "--store",
    metavar="URL",
    help="Store to work on: a file name, or postgresql://USER:PASSWORD@HOST/DATABASE. [env MESSAGER_STORE; "
    "default ./messager.db]",
)
@click.option(
    "--broker",
    "--redis",
    "broker",
    metavar="URL",
    help="Broker to talk to: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, mqtt:// or mqtts://. "
    "[env MESSAGER_BROKER, MESSAGER_REDIS; default redis://localhost:6379/0]",
)
@click.version_option(package_name="messager", message="%(prog)s %(version)s")
def cli(store: str | None, broker: str | None) -> None:
    """A flight recorder for societies of AI agents.

    Records what agents say to each other over Redis channels or MQTT topics, answers questions about it
    afterwards, and puts a stored experiment back on the wire. New here? `messager demo`.
    """


class _CannotPrint(OSError):
    """Standard output takes no more: the disk behind it is full, perhaps."""


class _Stdout(io.FileIO):
    """Standard output that tells its own faults from those of other files. A reader that went away is none."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _CannotPrint(error.errno, error.strerror) from None


def main() -> None:
    """The entry point: run a verb, and end with its exit code. A polite kill ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if (out := sys.stdout) is sys.__stdout__ and isinstance(out, io.TextIOWrapper):
        raw = io.BufferedWriter(_Stdout(out.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, out.encoding, out.errors, None, out.line_buffering, out.write_through)
    sys.exit(_run())


def _run() -> int:
    color = False if _is_plain() else None
    try:
        code = cli.main(standalone_mode=False, prog_name="messager", color=color)
        if sys.stdout is not None:
            sys.stdout.flush()  # here it can still be told
    except click.UsageError as error:
        if error.ctx is not None and _is_help(error):
            click.echo(error.ctx.get_help(), err=True, color=color)
            return 2
        where = error.ctx.command_path if error.ctx else "messager"
        return _complain(f"{error.format_message()} (see `{where} --help`)", 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 1 if getattr(error, "negative", False) else 2)
    except (KeyboardInterrupt, click.Abort):
        click.echo("messager: interrupted", err=True)
        return 130
    except (BrokenPipeError, SystemExit):  # the reader, `head` perhaps, has seen enough; click exits for that
        _drop_output()
        return 0
    except _CannotPrint as error:
        _drop_output()
        return _complain(f"cannot write to standard output: {error.strerror}", 3)
    except UnicodeEncodeError as error:
        return _complain(f"{error.object!a} is not valid UTF-8", 2)
    except Exception as error:
        known = _exit_code(error)
        if known is None:
            raise
        return _complain(str(error), known)
    return code if isinstance(code, int) else 0


def _is_plain() -> bool:
    """Whether no colours are wanted (https://no-color.org), or the terminal has none."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _drop_output() -> None:
    """Let go what is still to be printed, so that Python does not stumble over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_help(error: click.UsageError) -> bool:
    """Whether click means to show the help, because there were no arguments at all."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _exit_code(error: Exception) -> int | None:
    """The exit code of an error that is ours, or None for a fault of the program."""
    from messager.errors import BrokerUnavailable, MessagerError

    from ..errors import StoreError

    if isinstance(error, StoreError):
        return error.exit_code
    if isinstance(error, BrokerUnavailable):
        return 3
    return 2 if isinstance(error, MessagerError) else None


def _complain(message: str, code: int) -> int:
    from ..text import safe

    line = safe(" ".join(message.split()))
    click.echo(f"{click.style('messager:', fg='red')} {line}", err=True, color=False if _is_plain() else None)
    return code

"""The command line, `messager`: one module per verb in `commands`, each a thin call of a library function.

Exit codes: 0 success; 1 negative answer; 2 wrong use or bad input; 3 store, broker or output unavailable;
130 interrupted. An error is one line on standard error, without a traceback.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from typing import Any

import click

from .place import PLACE
from .verbs import Verbs


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Run `messager VERB --help` for the options of a verb. EXP is an exp_id, a unique prefix of one, "
    "a name, or @last for the newest experiment. Exit codes: 0 success, 1 negative answer, 2 wrong use or bad input, "
    "3 store, broker or output unavailable, 130 interrupted. NO_COLOR=1 turns colours off.",
)
@click.option(
    "--store",
    type=PLACE,
    metavar="URL",
    help="Store to use: a file name, or postgresql://USER:PASSWORD@HOST/DATABASE. [env MESSAGER_STORE; "
    "default ./messager.db]",
)
@click.option(
    "--broker",
    "--redis",
    "broker",
    type=PLACE,
    metavar="URL",
    help="Broker to use: redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, mqtt:// or mqtts://. "
    "[env MESSAGER_BROKER, MESSAGER_REDIS; default redis://localhost:6379/0]",
)
@click.version_option(package_name="messager", message="%(prog)s %(version)s")
def cli(store: str | None, broker: str | None) -> None:
    """A flight recorder for societies of AI agents.

    Record the messages that agents exchange over Redis channels or MQTT topics, query them, and replay a
    stored experiment onto the channels. To try it, run `messager demo`.
    """


MOST_LINE = 2000
"""Characters of an error: what was given may be of any length."""


class _StdoutFailed(OSError):
    """Standard output cannot be written, for example because its disk is full."""


class _Stdout(io.FileIO):
    """Standard output whose write errors can be told from those of other files. A closed pipe is no error."""

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _StdoutFailed(error.errno, error.strerror) from None


def main() -> None:
    """Run a verb and exit with its code. SIGTERM interrupts it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _open_missing_streams()
    if (out := sys.stdout) is sys.__stdout__ and isinstance(out, io.TextIOWrapper):
        raw = io.BufferedWriter(_Stdout(out.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, out.encoding, out.errors, None, out.line_buffering, out.write_through)
    code = _run()
    gc.freeze()  # else Python traverses every module several times at exit: 0.1 s
    sys.exit(code)


def _open_missing_streams() -> None:
    """Open standard streams that the caller has closed (`>&-`), so that other files do not get their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _run() -> int:
    color = False if _is_plain() else None
    try:
        code = cli.main(standalone_mode=False, prog_name="messager", color=color)
        if sys.stdout is not None:
            sys.stdout.flush()  # an error in Python's own flush at exit could not be reported
    except click.UsageError as error:
        if error.ctx is not None and isinstance(error, click.exceptions.NoArgsIsHelpError):
            click.echo(error.ctx.get_help(), err=True, color=color)
            return 2
        verb = error.ctx.command_path if error.ctx else "messager"
        return _report(f"{error.format_message()} (see `{verb} --help`)", 2)
    except click.ClickException as error:
        return _report(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("messager: interrupted", err=True)
        return 130
    except (BrokenPipeError, SystemExit):  # the reader, such as `head`, closed the pipe; click exits for that
        _discard_output()
        return 0
    except _StdoutFailed as error:
        _discard_output()
        return _report(f"cannot write to standard output: {error.strerror}", 3)
    except OSError as error:  # of a file that was named, or of the machine
        name = f"{error.filename}: " if error.filename is not None else ""
        return _report(f"{name}{error.strerror or error}", 3)
    except MemoryError:
        return _report("there is not enough memory", 3)
    except UnicodeEncodeError as error:
        return _report(f"{error.object!a} is not valid UTF-8", 2)
    except Exception as error:
        known = _exit_code(error)
        if known is None:
            raise
        return _report(str(error), known)
    return code if isinstance(code, int) else 0


def _is_plain() -> bool:
    """Return whether colours are unwanted (https://no-color.org) or the terminal has none."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _discard_output() -> None:
    """Discard buffered output, so that Python's flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of an expected error, or None for a bug."""
    from messager.errors import BrokerUnavailable, MessagerError

    from ..errors import StoreError

    if isinstance(error, StoreError):
        return error.exit_code
    if isinstance(error, BrokerUnavailable):
        return 3
    return 2 if isinstance(error, MessagerError) else None


def _report(message: str, code: int) -> int:
    """Print an error as one line, and return the exit code."""
    from ..text import safe

    line = safe(" ".join(message.split()))
    if len(line) > MOST_LINE:
        line = f"{line[: MOST_LINE // 2]} … {line[-MOST_LINE // 2 :]}"  # the remedy is at the end
    click.echo(f"{click.style('messager:', fg='red')} {line}", err=True, color=False if _is_plain() else None)
    return code

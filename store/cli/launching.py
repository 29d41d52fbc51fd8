"""Programs that a verb runs as they are, with another environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import click

from ..text import safe


def program_of(command: tuple[str, ...]) -> str:
    """Return the part of a command that names what it runs: of `python -m society`, society."""
    if not os.path.basename(command[0]).startswith("python"):
        return command[0]
    rest = iter(command[1:])
    for part in rest:
        if part == "-m":
            return next(rest, command[0])
        if part == "-c":
            return command[0]
        if part in ("-W", "-X"):
            next(rest, None)
        elif not part.startswith("-"):
            return part
    return command[0]


def checked(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command without the `--` before it. Raises `UsageError` if there is no such program."""
    command = command[1:] if command[:1] == ("--",) else command
    if command and shutil.which(command[0]) is None:
        raise click.UsageError(f"there is no program {safe(command[0])}: give a program and its arguments")
    return command


def launch(command: tuple[str, ...], environment: dict[str, str]) -> int:
    """Run a program until it ends, and return its exit code. Ctrl-C reaches it, too, and SIGTERM is passed on."""
    program = subprocess.Popen(command, env=environment)
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    terminate = signal.signal(signal.SIGTERM, lambda *at: program.terminate())
    try:
        code = program.wait()
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, terminate)
    return code if code >= 0 else 128 - code

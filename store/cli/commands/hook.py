"""messager hook"""

from __future__ import annotations

import click

from ...text import safe
from ..output import note


@click.group()
def command() -> None:
    """Reach programs that ignore PYTHONPATH (`python -I`) with `messager run`.

    The hook is one file in the site-packages of this Python. It does nothing unless a program is started by
    `messager run`, and is removed with the package.
    """


@command.command()
def install() -> None:
    """Install the hook in this Python environment."""
    from messager.start import hook

    try:
        path = hook.install()
    except OSError as error:
        raise click.ClickException(
            f"{safe(str(hook.hook_file()))} cannot be written: {error.strerror or error}. Use a virtual environment"
        ) from None
    note(f"installed {safe(str(path))}; `messager hook remove` removes it")


@command.command()
def remove() -> None:
    """Remove the hook."""
    from messager.start import hook

    try:
        there = hook.remove()
    except OSError as error:
        raise click.ClickException(
            f"{safe(str(hook.hook_file()))} cannot be removed: {error.strerror or error}"
        ) from None
    note(f"removed {safe(str(hook.hook_file()))}" if there else "no hook is installed in this Python environment")

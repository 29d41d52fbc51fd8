"""Write docs/cli.md: every verb with its `--help`, so that the page cannot drift. A test holds it to that.

python docs/generate.py
"""

from __future__ import annotations

from pathlib import Path

import click

from messager_store.cli import cli
from messager_store.cli.verbs import sections

PAGE = Path(__file__).with_name("cli.md")
INTRODUCTION = """# The command line

Made by `python docs/generate.py` from the commands themselves.
"""


def help_of(*path: tuple[str, click.Command]) -> str:
    """What `--help` prints for a command reached by this path, fenced, 100 columns wide."""
    context: click.Context | None = None
    for name, command in (("messager", cli), *path):
        context = click.Context(
            command,
            info_name=name,
            parent=context,
            terminal_width=100,
            max_content_width=100,
            help_option_names=["-h", "--help"],
        )
    assert context is not None
    return f"```text\n{click.unstyle(context.command.get_help(context)).rstrip()}\n```\n"


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, help_of()]
    for section, verbs in sections().items():
        parts.append(f"## {section}\n")
        for verb in (each.name for each in verbs):
            command = cli.get_command(click.Context(cli), verb)
            assert command is not None
            parts += [f"### messager {verb}\n", help_of((verb, command))]
            if isinstance(command, click.Group):
                parts += [help_of((verb, command), (name, command.commands[name])) for name in sorted(command.commands)]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())

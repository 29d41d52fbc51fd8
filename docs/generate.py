"""Write docs/cli.md: every verb with its `--help`, so that the page cannot drift. A test holds it to that.

python docs/generate.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from messager_store.cli import SECTIONS, cli

PAGE = Path(__file__).with_name("cli.md")
SHAPE: dict[str, Any] = {"terminal_width": 100, "max_content_width": 100, "help_option_names": ["-h", "--help"]}
INTRODUCTION = """# The command line

Made by `python docs/generate.py` from the commands themselves.

"""


def help_of(command: click.Command, *path: str) -> str:
    """What `--help` prints, 100 columns wide."""
    context = click.Context(
        cli,
        info_name="messager",
        terminal_width=100,
        max_content_width=100,
        help_option_names=["-h", "--help"],
        color=False,
    )
    for name in path:
        context = click.Context(
            command,
            info_name=name,
            parent=context,
            terminal_width=100,
            max_content_width=100,
            help_option_names=["-h", "--help"],
        )
    return click.unstyle(command.get_help(context)).rstrip()


def page() -> str:
    """The whole page."""
    parts = [f"{INTRODUCTION}```text\n{help_of(cli)}\n```\n"]
    context = click.Context(cli, info_name="messager")
    for section, verbs in SECTIONS.items():
        parts.append(f"## {section}\n")
        for verb in verbs:
            command = cli.get_command(context, verb)
            assert command is not None
            parts.append(f"### messager {verb}\n\n```text\n{help_of(command, verb)}\n```\n")
            if isinstance(command, click.Group):
                parts += [f"```text\n{_sub(command, verb, name)}\n```\n" for name in sorted(command.commands)]
    return "\n".join(parts)


def _sub(group: click.Group, verb: str, name: str) -> str:
    outer = click.Context(cli, info_name="messager", **SHAPE)
    middle = click.Context(
        group,
        info_name=verb,
        parent=outer,
        terminal_width=100,
        max_content_width=100,
        help_option_names=["-h", "--help"],
    )
    command = group.commands[name]
    inner = click.Context(
        command,
        info_name=name,
        parent=middle,
        terminal_width=100,
        max_content_width=100,
        help_option_names=["-h", "--help"],
    )
    return click.unstyle(command.get_help(inner)).rstrip()


if __name__ == "__main__":
    PAGE.write_text(page())

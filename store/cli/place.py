"""Types of options and arguments that name a file, a folder or a URL."""

from __future__ import annotations

import os
from typing import Any

import click


class _Place(click.types.StringParamType):
    """A name that is not empty: an empty variable in a script must not stand for a default, as in `rm --yes`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name is empty. Give one, or leave the option out", param, ctx)
        return super().convert(value, param, ctx)


class _Folder(_Place):
    """A name of a folder, which need not exist."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if os.path.isfile(value):
            self.fail(f"{value} is a file, not a folder", param, ctx)
        return super().convert(value, param, ctx)


PLACE, FOLDER = _Place(), _Folder()

"""Types of options that are numbers: none beyond what the databases and the clocks of Python hold."""

from __future__ import annotations

from typing import Any

import click

MOST = 10**18
"""Maximum of a whole number. SQL has 64 bits, also for one more."""
MOST_SECONDS = 10**9


class Whole(click.IntRange):
    """A whole number from `min` on."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number > MOST:
            self.fail(f"{str(number)[:40]} is more than {MOST:,}", param, ctx)
        return number


class Seconds(click.FloatRange):
    """A number of seconds from `min` on; neither nan nor inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not number <= MOST_SECONDS:
            self.fail(f"{number} is not a number of up to {MOST_SECONDS:,} seconds", param, ctx)
        return number

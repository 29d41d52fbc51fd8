"""Options of a `Match`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..matching.match import Match

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--framework",
        type=click.Choice(["agentscope", "agentsociety"]),
        metavar="NAME",
        help="agentscope or agentsociety: leave out the ids and the times of the wall clock of its messages.",
    ),
    click.option(
        "--ignore",
        multiple=True,
        metavar="PATH",
        help="Leave this part of JSON payloads out of the comparison: id, items.*.name, '**.timestamp' (at any "
        "depth), or a path as printed: '$.a[1][\"b c\"]'. Repeatable.",
    ),
    click.option(
        "--shape",
        multiple=True,
        metavar="PATH",
        help="Compare only types and keys in this part of JSON payloads: any text equals any text. Repeatable.",
    ),
    click.option(
        "--tolerance",
        type=float,
        metavar="N",
        help="Numbers that differ by N or less are equal; 0 compares JSON values without another rule.",
    ),
    click.option("--bytes", "bytes_only", is_flag=True, help="Compare payloads byte for byte."),
)


def match_options(function: F) -> F:
    """Add the options of a `Match`; the verb gets them as one argument, `match`, which is None if none was given."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in ("framework", "ignore", "shape", "tolerance", "bytes_only")}
        return function(*args, match=_match(**given), **kwargs)

    for option in reversed(_OPTIONS):
        call = option(call)
    return call  # type: ignore[return-value]


def _match(tolerance: float | None, **given: Any) -> Match | None:
    """Return the `Match` of the options. Raises `StoreError` for wrong ones."""
    from ..matching.match import Match

    if tolerance is None and not any(given.values()):
        return None
    if given["bytes_only"] and tolerance is not None:
        raise click.UsageError("--bytes compares every byte: leave out --tolerance")
    return Match.from_dict({**given, "tolerance": tolerance or 0.0})

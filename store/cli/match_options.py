"""Options of a `Match`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..matching.match import Match

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
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
    """Add --ignore, --shape, --tolerance and --bytes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def given_match(
    ignore: tuple[str, ...], shape: tuple[str, ...], tolerance: float | None, bytes_only: bool
) -> Match | None:
    """Return the `Match` of the options, or None if there was none. Raises `StoreError` for wrong ones."""
    from ..matching.match import Match

    if not ignore and not shape and tolerance is None and not bytes_only:
        return None
    if bytes_only and tolerance is not None:
        raise click.UsageError("--bytes compares every byte: leave out --tolerance")
    return Match(ignore=ignore, tolerance=tolerance or 0.0, shape=shape, bytes_only=bytes_only)

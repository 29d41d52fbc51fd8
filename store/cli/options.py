"""What several verbs share: their options, and how they reach the store and the broker."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from messager.brokers import Broker

    from ..log.event_log import EventLog

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

DEFAULT_STORE = "messager.db"
DEFAULT_BROKER = "redis://localhost:6379/0"
_ELSEWHERE = {
    "store": (DEFAULT_STORE, "MESSAGER_STORE"),
    "broker": (DEFAULT_BROKER, "MESSAGER_BROKER", "MESSAGER_REDIS"),
}
"""By parameter: its default, and the variables of the environment that come before it."""


def _inherited(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """The option given to the verb, else to `messager` itself, else the environment's, else the default."""
    name = parameter.name or ""
    default, *variables = _ELSEWHERE[name]
    given = value or ctx.find_root().params.get(name)
    return str(given or next(filter(None, map(os.environ.get, variables)), default))


def store_option(function: F) -> F:
    """--store, for a verb that works on a store."""
    return click.option(
        "--store",
        metavar="URL",
        callback=_inherited,
        help="A file name, or postgresql://USER:PASSWORD@HOST/DATABASE. [env MESSAGER_STORE; default "
        f"./{DEFAULT_STORE}]",
    )(function)


def broker_option(function: F) -> F:
    """--broker, for a verb that talks to one; --redis is what it was called when there was one kind of them."""
    return click.option(
        "--broker",
        "--redis",
        "broker",
        metavar="URL",
        callback=_inherited,
        help="redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, mqtt:// or mqtts://. "
        "[env MESSAGER_BROKER, MESSAGER_REDIS; "
        f"default {DEFAULT_BROKER}]",
    )(function)


def durability_option(function: F) -> F:
    """--durability, for a verb that records."""
    return click.option(
        "--durability",
        type=click.Choice(["buffered", "strict"]),
        default="buffered",
        show_default=True,
        help="strict: a sending is committed, or on disk, before it is published. What is received is buffered "
        "in both: a kill loses at most what came after the last commit.",
    )(function)


def json_option(function: F) -> F:
    """--json, wherever something is read."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


_SELECTION = (
    click.option(
        "--kind",
        "kinds",
        multiple=True,
        metavar="KIND",
        help="Only these kinds: sent, received, blocked, failed, gap, mark.",
    ),
    click.option("--channel", "channels", multiple=True, metavar="GLOB", help="Only these channels."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="Not these channels."),
    click.option(
        "--agent",
        "agents",
        multiple=True,
        metavar="ID",
        help='Only from or to these agents: 5 is 5 and "5", \'"5"\' only the text.',
    ),
    click.option("--from", "from_ids", multiple=True, metavar="ID", help="Only from these agents."),
    click.option("--to", "to_ids", multiple=True, metavar="ID", help="Only to these agents."),
)
"""The filters of `Selection`."""
_PART = (
    click.option("--since", metavar="POINT", help="From here on: time, offset, cursor or mark:NAME."),
    click.option("--until", metavar="POINT", help="Up to here, excluded."),
    click.option("--after", metavar="CURSOR", help="Behind this event."),
    click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many."),
)
"""The other filters of `EventLog.read`."""


def selection_options(function: F) -> F:
    """Add the options of `Selection`: kinds, channels and agents."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


def filter_options(function: F) -> F:
    """Add the options of `EventLog.read`: those of `Selection`, and which part of the experiment."""
    for option in reversed(_PART):
        function = option(function)
    return selection_options(function)


def chosen(**filters: Any) -> dict[str, Any]:
    """Filters as the command line gives them, as the library takes them."""
    given = {key: value for key, value in filters.items() if value not in (None, ())}
    for key in given.keys() & {"agents", "from_ids", "to_ids"}:
        given[key] = agent_ids(given[key])
    return given


def agent_ids(words: tuple[str, ...]) -> list[Any]:
    """Agents as typed: `5` means 5 and "5", `"5"` only the text."""
    ids: list[Any] = []
    for word in words:
        if len(word) > 1 and word[0] == word[-1] == '"':
            ids.append(word[1:-1])
            continue
        ids.append(word)
        if re.fullmatch(r"-?[0-9]{1,4000}", word):
            ids.append(int(word))
    return ids


def pairs(words: tuple[str, ...], option: str) -> dict[str, str]:
    """KEY=VALUE words as a dict; those of --map are OLD=NEW."""
    form = "OLD=NEW" if option == "--map" else "KEY=VALUE"
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} takes {form}, not {word!r}")
        found[key] = value
    return found


def meta_values(words: tuple[str, ...]) -> dict[str, Any]:
    """K=V words as meta: a value that is JSON (7, true, [1]) is that, any other is a string."""
    return {key: _json_or_text(value) for key, value in pairs(words, "--meta").items()}


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def ask(question: str) -> bool:
    """A yes or no, asked on standard error. Ctrl-C ends the question, and with it the verb."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the event loop's would only take note of it
    try:
        return click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def confirmed(question: str, yes: bool, otherwise: str, show: Callable[[], None] | None = None) -> None:
    """Ask, after showing what it is about. A no ends the verb with exit code 1, and `otherwise` as its last word.

    Where there is no terminal to ask on, only `yes` goes on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this asks first, and there is no terminal to answer on: say --yes")
    if show is not None:
        show()
    if not ask(question):
        click.secho(otherwise, err=True, dim=True)
        raise click.exceptions.Exit(1)


@asynccontextmanager
async def opened(store: str, *, create: bool = False) -> AsyncIterator[EventLog]:
    """The log of a store. A verb that only reads does not make one."""
    from ..log.event_log import EventLog

    async with EventLog.open(store, create=create) as log:
        yield log


@asynccontextmanager
async def broker_at(url: str) -> AsyncIterator[Broker]:
    """The broker at a URL, given up at the end."""
    from messager.brokers import open_broker

    try:
        broker = open_broker(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        yield broker
    finally:
        await broker.close()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a verb's coroutine. A polite kill cancels it, as Ctrl-C does, so that it can clean up."""

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await main

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None

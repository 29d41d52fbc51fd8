"""Options that several verbs share, and access to the store and the broker that they name."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from .place import PLACE

if TYPE_CHECKING:
    from messager.brokers import Broker

    from ..log.event_log import EventLog

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_STORE = "messager.db"
DEFAULT_BROKER = "redis://localhost:6379/0"
_DEFAULTS = {
    "store": (DEFAULT_STORE, "MESSAGER_STORE"),
    "broker": (DEFAULT_BROKER, "MESSAGER_BROKER", "MESSAGER_REDIS"),
}
"""By parameter: the default, and the environment variables that override it."""


def _inherited(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """Return the option of the verb, else that of `messager`, else the environment variable, else the default."""
    name = parameter.name or ""
    default, *variables = _DEFAULTS[name]
    given = value or ctx.find_root().params.get(name)
    if given:
        return str(given)
    variable = next((variable for variable in variables if variable in os.environ), "")
    if variable and not os.environ[variable]:
        raise click.UsageError(f"the variable {variable} is empty. Set it to a name, or unset it")
    return os.environ.get(variable, default)


def store_option(function: F) -> F:
    """Add --store."""
    return click.option(
        "--store",
        type=PLACE,
        metavar="URL",
        callback=_inherited,
        help="A file name, or postgresql://USER:PASSWORD@HOST/DATABASE. [env MESSAGER_STORE; default "
        f"./{DEFAULT_STORE}]",
    )(function)


def broker_option(function: F) -> F:
    """Add --broker, or --redis."""
    return click.option(
        "--broker",
        "--redis",
        "broker",
        type=PLACE,
        metavar="URL",
        callback=_inherited,
        help="redis://, rediss://, unix://, redis+sentinel://, redis+cluster://, mqtt:// or mqtts://. "
        "[env MESSAGER_BROKER, MESSAGER_REDIS; "
        f"default {DEFAULT_BROKER}]",
    )(function)


def durability_option(function: F) -> F:
    """Add --durability, for verbs that record."""
    return click.option(
        "--durability",
        type=click.Choice(["buffered", "strict"]),
        default="buffered",
        show_default=True,
        help="strict: a message is committed to the store, or to a synced spool, before it is published. "
        "Received messages are buffered in both modes: a kill loses at most those since the last commit.",
    )(function)


def json_option(function: F) -> F:
    """Add --json, for verbs that read."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def output_options(function: F) -> F:
    """Add --json and --csv, for verbs that print one table; the verb gets them as one argument, `form`."""
    from .output import Form

    @wraps(function)
    def call(*args: Any, as_json: bool, as_csv: bool, **kwargs: Any) -> Any:
        if as_json and as_csv:
            raise click.UsageError("--csv and --json cannot be combined")
        form = Form.JSON if as_json else Form.CSV if as_csv else Form.TABLE
        return function(*args, form=form, **kwargs)

    return json_option(click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")(call))  # type: ignore[return-value]


def pairs(words: tuple[str, ...], option: str) -> dict[str, str]:
    """Return KEY=VALUE words as a dict; those of --map are OLD=NEW."""
    form = "OLD=NEW" if option == "--map" else "KEY=VALUE"
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} takes {form}, not {word!r}")
        found[key] = value
    return found


def meta_values(words: tuple[str, ...]) -> dict[str, Any]:
    """Return K=V words as meta: a value that is JSON (7, true, [1]) is parsed, any other is a string."""
    return {key: _json_or_text(value) for key, value in pairs(words, "--meta").items()}


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def ask(question: str) -> bool:
    """Ask a yes-or-no question on standard error. Ctrl-C ends the question and the verb."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio's handler would not interrupt input()
    try:
        return click.confirm(question, err=True)
    finally:
        signal.signal(signal.SIGINT, before)


def confirm(question: str, yes: bool, refusal: str, show: Callable[[], None] | None = None) -> None:
    """Ask for confirmation, after `show`. The answer no prints `refusal` and ends the verb with exit code 1.

    With `yes`, nothing is asked or shown. Without a terminal to ask on, `yes` is required.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this asks for confirmation, and there is no terminal to ask on: add --yes")
    if show is not None:
        show()
    if not ask(question):
        click.secho(refusal, err=True, dim=True)
        raise click.exceptions.Exit(1)


@asynccontextmanager
async def open_log(store: str, *, create: bool = False) -> AsyncIterator[EventLog]:
    """Open the log of a store. Verbs that only read do not create one."""
    from ..log.event_log import EventLog

    async with EventLog.open(store, create=create) as log:
        yield log


@asynccontextmanager
async def broker_at(url: str) -> AsyncIterator[Broker]:
    """Make the broker of a URL, and close it at the end."""
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
    """Run the coroutine of a verb. SIGTERM cancels it, as Ctrl-C does, so that it can clean up."""

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await main

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def asynchronous(function: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a verb of a coroutine function. SIGTERM cancels it, as Ctrl-C does."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        run(function(*args, **kwargs))

    return call

"""Options that select events, the same for every verb, and their values as a `Selection`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..log.typed_ids import typed_ids
from ..text import plural
from .numbers import Whole
from .output import note

if TYPE_CHECKING:
    from ..experiments.records import Experiment
    from ..log.event_log import EventLog
    from ..log.selection import Selection

F = TypeVar("F", bound=Callable[..., Any])

_LIMIT = click.option("--limit", type=Whole(min=0), metavar="N", help="At most N events.")
_SHORT_LIMIT = click.option("-n", "--limit", type=Whole(min=0), metavar="N", help="At most N events.")
_OPTIONS = (
    click.option(
        "--kind",
        "kinds",
        multiple=True,
        metavar="KIND",
        help="Only events of this kind: sent, received, blocked, failed, gap, mark. Filters with one value are "
        "repeatable; an event must match one of the values.",
    ),
    click.option("--channel", "channels", multiple=True, metavar="GLOB", help="Only channels that match GLOB."),
    click.option("--exclude", multiple=True, metavar="GLOB", help="Not the channels that match GLOB."),
    click.option(
        "--agent",
        "agents",
        multiple=True,
        metavar="ID",
        help='Only messages from or to this agent. 5 means the number 5 and the string "5"; \'"5"\' only the string.',
    ),
    click.option("--from", "from_ids", multiple=True, metavar="ID", help="Only messages from this agent."),
    click.option("--to", "to_ids", multiple=True, metavar="ID", help="Only messages to this agent."),
    click.option("--no-from", is_flag=True, help="Only messages without a sender; with --from, those too."),
    click.option("--no-to", is_flag=True, help="Only messages without a recipient; with --to, those too."),
    click.option("--between", nargs=2, metavar="A B", help="Only messages from A to B, and from B to A.", default=None),
    click.option(
        "--grep", multiple=True, metavar="TEXT", help="Only messages that say TEXT, in any case, width and script."
    ),
    click.option("--regex", is_flag=True, help="--grep is a regular expression, which ignores case."),
    click.option(
        "--where",
        multiple=True,
        metavar="PATH=VALUE",
        help="Only messages with such a field in their payload: price=3, 'price > 3', 'items.*.name ~ lamp'; with =, "
        "!=, <, <=, >, >= or ~ (contains). If repeated, all must hold.",
    ),
    click.option("--text", metavar="PATH", help="Where the spoken text is in payloads, for --grep and output."),
    click.option(
        "--since", metavar="POINT", help="Start here: a time, an offset, a cursor or mark:NAME (docs/querying.md)."
    ),
    click.option("--until", metavar="POINT", help="End before this point."),
    click.option("--after", metavar="CURSOR", help="Start after this event."),
    click.option(
        "--around", metavar="POINT[+-30s]", help="Only this time before and after a point; 30 s if none is given."
    ),
    _LIMIT,
    click.option(
        "--last-per",
        type=click.Choice(["channel", "agent"]),
        help="Only the last event on each channel, or of each sender: with --until, the state at that moment.",
    ),
    click.option(
        "-C",
        "--context",
        type=Whole(min=0),
        default=0,
        metavar="N",
        help="Also the N events before and after each on its channel.",
    ),
)
"""The filters of `Selection`; their parameters have the same names there."""
_NAMES = (
    *("kinds", "channels", "exclude", "agents", "from_ids", "to_ids", "between", "grep", "regex", "where", "text"),
    *("since", "until", "after", "around", "limit", "last_per", "context"),
)

_NONE = {"no_from": "from_ids", "no_to": "to_ids"}
"""Flags for no sender and no recipient: None as one of the ids of an argument of `Selection`."""


class Filters:
    """The filters that were given to a verb."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        """As typed, by name of the argument of `Selection`."""

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `Selection` that were given, with agent ids as the library expects them."""
        given = {key: value for key, value in self.options.items() if value not in (None, (), False) and value != 0}
        if self.options["limit"] == 0:
            given["limit"] = 0
        for key in given.keys() & {"agents", "from_ids", "to_ids"}:
            given[key] = [agent for word in given[key] for agent in typed_ids(word)]
        for flag, key in _NONE.items():
            if given.pop(flag, False):
                given[key] = [*given.get(key, ()), None]
        if "between" in given:
            given["between"] = tuple(map(typed_ids, given["between"]))
        return given

    def selection(self) -> Selection:
        """Return the selection, with the count that `note_where` prints. Raises `StoreError` for a wrong filter."""
        from ..log.not_json import NotJson
        from ..log.selection import Selection

        if self.options["regex"] and not self.options["grep"]:
            raise click.UsageError("--regex is a way to read --grep: give the regular expression with --grep")
        return Selection(**self.given).counting(NotJson())

    def typed(self) -> str:
        """Return the filters as typed, as one line; empty for none."""
        words = []
        for name in self.options:
            if name not in _NONE and name not in self.given:
                continue
            value, option = self.options[name], _SPELLED.get(name, name.replace("_", "-"))
            for each in value if isinstance(value, tuple) and name != "between" else (value,):
                texts = each if isinstance(each, tuple) else () if each is True else (str(each),)
                words.append(" ".join((f"--{option}", *map(quote, texts))))
        return " ".join(words)

    def refuse(self, *names: str, reason: str) -> None:
        """Raise `UsageError` if one of these filters was given: `reason` says what to do instead."""
        found = [f"--{name.replace('_', '-')}" for name in names if name in self.given]
        if found:
            raise click.UsageError(f"{', '.join(found)}: {reason}")

    async def note_unknown(self, log: EventLog, of: Experiment) -> None:
        """Print a note for each channel pattern and agent that no event of the experiment has, and for recipients if
        there are none.
        """
        from ..log.selection import Selection
        from ..queries.recipients import has_recipients

        if patterns := self.options["channels"]:
            known = await log.channels(of)
            wanted = await log.as_recorded(of, Selection(channels=patterns))
            for pattern in patterns:
                if not any(wanted.fits([pattern], channel) for channel in known):
                    note(f"--channel {pattern}: {of.exp_id} has no such channel")
        given = [(option, words) for option, key in _AGENT_OPTIONS if (words := self.options[key])]
        if given:
            agents = await log.agents(of)
            for option, words in given:
                for word in words:
                    if not any(agent in agents for agent in typed_ids(word)):
                        note(f"{option} {word}: {of.exp_id} has no such agent")
        pair = self.options["between"]
        if (pair or self.options["to_ids"]) and not await has_recipients(log.database, of):
            note(f"{'--between' if pair else '--to'}: no message of {of.exp_id} names a recipient, as in a group chat")
            if pair:
                note("for the messages of both agents, give: --from {} --from {}".format(*map(quote, pair)))


_SPELLED = {"kinds": "kind", "channels": "channel", "agents": "agent", "from_ids": "from", "to_ids": "to"}
"""Options whose name is not that of the argument."""
_AGENT_OPTIONS = (("--agent", "agents"), ("--from", "from_ids"), ("--to", "to_ids"), ("--between", "between"))


def selection_options(function: F) -> F:
    """Add the options of `Selection`; the verb gets them as one argument, `filters`."""
    return _with_options(function, _OPTIONS)


def selection_options_with_n(function: F) -> F:
    """Add the options of `Selection`, with -n for --limit: for verbs that print events."""
    return _with_options(function, tuple(_SHORT_LIMIT if option is _LIMIT else option for option in _OPTIONS))


def _with_options(function: F, options: tuple[Callable[[F], F], ...]) -> F:

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, filters=Filters({name: kwargs.pop(name) for name in (*_NAMES, *_NONE)}), **kwargs)

    for option in reversed(options):
        call = option(call)
    return call  # type: ignore[return-value]


def note_where(selection: Selection) -> None:
    """Print a note of what `--where` could not examine: payloads that are not JSON, and paths that none has."""
    if selection.not_json is not None and selection.not_json.count:
        note(f"--where: {plural(selection.not_json.count, 'payload')} skipped, as not JSON")
    for condition in selection.content.conditions if selection.content is not None else ():
        if condition.absent:
            note(f"--where: no payload has {condition.path}")

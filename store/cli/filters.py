"""Options that select events, and their values as the library expects them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .output import note

if TYPE_CHECKING:
    from ..experiments.records import Experiment
    from ..log.event_log import EventLog

F = TypeVar("F", bound=Callable[..., Any])

_SELECTION = (
    click.option(
        "--kind",
        "kinds",
        multiple=True,
        metavar="KIND",
        help="Only events of this kind: sent, received, blocked, failed, gap, mark. Repeatable, as all filters are.",
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
)
"""The filters of `Selection`."""
_RANGE = (
    click.option("--since", metavar="POINT", help="Start here: a time, an offset, a cursor or mark:NAME."),
    click.option("--until", metavar="POINT", help="End before this point."),
    click.option("--after", metavar="CURSOR", help="Start after this event."),
    click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N events."),
)
"""The other filters of `EventLog.read`."""


def selection_options(function: F) -> F:
    """Add the options of `Selection`: kinds, channels and agents."""
    for option in reversed(_SELECTION):
        function = option(function)
    return function


def range_options(function: F) -> F:
    """Add --since and --until."""
    for option in reversed(_RANGE[:2]):
        function = option(function)
    return function


def filter_options(function: F) -> F:
    """Add the options of `EventLog.read`: those of `Selection`, and the range of events."""
    for option in reversed(_RANGE):
        function = option(function)
    return selection_options(function)


def library_filters(**filters: Any) -> dict[str, Any]:
    """Return the filters that were given, with agent ids as the library expects them."""
    given = {key: value for key, value in filters.items() if value not in (None, ())}
    for key in given.keys() & {"agents", "from_ids", "to_ids"}:
        given[key] = agent_ids(given[key])
    return given


def agent_ids(words: tuple[str, ...]) -> list[Any]:
    """Return the ids that were typed: `5` means the number 5 and the string "5", `"5"` only the string."""
    ids: list[Any] = []
    for word in words:
        if len(word) > 1 and word[0] == word[-1] == '"':
            ids.append(word[1:-1])
            continue
        ids.append(word)
        if re.fullmatch(r"-?[0-9]{1,4000}", word):
            ids.append(int(word))
    return ids


async def note_unknown(log: EventLog, of: Experiment, filters: dict[str, Any]) -> None:
    """Print a note for each channel pattern and agent that no event of the experiment has: it may be a typing error."""
    from ..log.selection import Selection

    if patterns := filters.get("channels"):
        known = await log.channels(of)
        wanted = await log.as_recorded(of, Selection(channels=patterns))
        for pattern in patterns:
            if not any(wanted.fits([pattern], channel) for channel in known):
                note(f"--channel {pattern}: {of.exp_id} has no such channel")
    given = [(option, filters[key]) for option, key in _AGENT_OPTIONS if filters.get(key)]
    if given:
        agents = await log.agents(of)
        for option, words in given:
            for word in words:
                if not any(agent in agents for agent in agent_ids((word,))):
                    note(f"{option} {word}: {of.exp_id} has no such agent")


_AGENT_OPTIONS = (("--agent", "agents"), ("--from", "from_ids"), ("--to", "to_ids"))

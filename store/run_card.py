"""The card of an experiment in a notebook: HTML with a drawing of the messages over time."""

from __future__ import annotations

from html import escape
from typing import Any

from .experiments.records import Experiment
from .log.event import iso
from .log.event_log import EventLog
from .queries.counting.count import count
from .queries.overview import overview
from .text import plural

WIDTH, HEIGHT = 480, 48
"""Size of the drawing, px."""
BARS = 120
"""Maximum of bars."""
MOST = 12
"""Maximum of agents and tags that are named."""


async def card(log: EventLog, of: Experiment) -> str:
    """Return the card. All recorded text is escaped."""
    found = await overview(log, await log.experiment(of.exp_id))
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found["kinds"].items() if count)
    agents = [str(agent) for agent in await log.agents(of)]
    facts = [
        ("when", _when(found)),
        ("events", kinds or "none"),
        ("agents", f"{len(agents):,}: {_named(agents)}" if agents else "none"),
        ("channels", f"{found['channels']:,}"),
        ("recorded by", plural(len(found["recorders"]), "recorder")),
    ]
    tags = "".join(f" <code>{escape(tag)}</code>" for tag in found["tags"][:MOST])
    name = f" {escape(found['name'])}" if found["name"] else ""
    rows = "".join(f"<tr><th style='text-align:left'>{title}</th><td>{escape(text)}</td></tr>" for title, text in facts)
    return (
        f"<div><b>{escape(of.exp_id)}</b>{name}{tags} <small>{escape(found['status'])}</small>"
        f"{await _sparkline(log, of)}<table>{rows}</table></div>"
    )


def _when(found: dict[str, Any]) -> str:
    if found["first_ts"] is None:
        return "no events"
    return f"{iso(found['first_ts'])[:19]}Z, {found['duration_s']:,.0f} s"


def _named(agents: list[str]) -> str:
    return ", ".join(agents[:MOST]) + (" …" if len(agents) > MOST else "")


async def _sparkline(log: EventLog, of: Experiment) -> str:
    """Return a drawing of the messages by minute."""
    return drawing({row.keys[0]: row.messages for row in await count(log, of, "minute")})


def drawing(counts: dict[int, int]) -> str:
    """Return counts by time as an SVG of at most `BARS` bars; nothing for none."""
    if not counts:
        return ""
    first, last = min(counts), max(counts)
    length = max(last - first, 1)
    bars = [0] * min(BARS, max(len(counts), 2))
    for at, number in counts.items():
        bars[min((at - first) * len(bars) // length, len(bars) - 1)] += number
    width = WIDTH / len(bars)
    most = max(bars)
    drawn = "".join(
        f"<rect x='{at * width:.1f}' y='{HEIGHT - (high := max(1, HEIGHT * bar / most)):.1f}' "
        f"width='{max(width - 1, 1):.1f}' height='{high:.1f}'/>"
        for at, bar in enumerate(bars)
        if bar
    )
    return (
        f"<svg width='{WIDTH}' height='{HEIGHT}' role='img' fill='#4a7fb5' style='display:block'>"
        f"<title>messages over time</title>{drawn}</svg>"
    )

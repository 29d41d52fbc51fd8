"""Progress and report of a replay, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ..text import length, plural, safe
from .output import Column, facts, note, print_json, table
from .progress import Progress, can_redraw

if TYPE_CHECKING:
    from ..replay import Control, Replay, ReplayReport

LONGEST = 100
"""Maximum number of characters of a channel."""
SHOWN = 20
"""Maximum number of channels in the report of a dry run."""
STALLED = 5.0
"""Seconds without reading after which a subscriber is reported."""


class ReplayProgress(Progress):
    """Progress of a replay. Where a line cannot be erased, one line for each stall of a subscriber."""

    def __init__(self, *, subscribers: int = 0, quiet: bool = False) -> None:
        super().__init__("replaying", "messages")
        self._subscribers = subscribers
        self._quiet = quiet
        self._stalled = False
        self._control: Control | None = None
        self._speed: float | None = None
        self._keys = False

    def __enter__(self) -> ReplayProgress:
        if self._subscribers and not self._quiet:
            super().__call__(0, description=f"waiting for {plural(self._subscribers, 'subscriber')}")
        return self

    def follow(self, replay: Replay, *, keys: bool) -> None:
        """Show pauses and changes of speed as well, and whether there are keys."""
        self._control, self._speed, self._keys = replay.control, replay.report.requested_speed, keys

    def __call__(self, report: ReplayReport) -> None:  # type: ignore[override]
        """Show the state of a replay."""
        if self._quiet:
            return
        stalled = report.stalled_s > STALLED
        description = self._doing(report) + (", ? for keys" if self._keys else "")
        if stalled:
            description = f"held back: {safe(report.held_by or '')} has read nothing for {report.stalled_s:.0f} s"
            if not self._stalled and not can_redraw():
                note(
                    f"held back after {report.published:,} messages: the subscriber {report.held_by} has read nothing "
                    f"for {STALLED:g} s (Ctrl-C ends the replay, --max-hold gives up automatically)"
                )
        self._stalled = stalled
        done = report.published - report.repeated - report.state_messages
        total: int | None = report.planned * (report.loops + 1) if done > report.planned else report.planned
        if report.at_least and done == total:  # receptions that nobody recorded the sending of: how many, is not known
            total = None
        super().__call__(done, total, description)

    def _doing(self, report: ReplayReport) -> str:
        changed = self._control is not None and report.requested_speed not in (None, self._speed)
        speed = f"{report.requested_speed:g} times the speed" if changed else ""
        if self._control is not None and self._control.paused:
            offset = self._control.status()["offset_s"]
            at = "paused" if offset is None else f"paused at {offset:.3f} s"
            return f"{at}, {speed}" if speed else at
        if report.held_back_s:
            return f"replaying (held back {report.held_back_s:.1f} s)"
        return f"replaying at {speed}" if speed else "replaying"


def show_report(report: ReplayReport, *, waited: bool = False) -> None:
    """Print the result of a replay or of a dry run."""
    if report.dry_run:
        _show_dry_run(report)
    elif report.planned:
        facts(_result(report))
    else:
        _show_internal(report)
        click.echo(f"nothing to publish: all {report.skipped:,} events are left out")
        return
    _show_internal(report)
    from ..lockstep.live_replay import LiveReplayReport

    if report.published and report.no_subscriber == report.published:
        remedy = "; patterns of other channels count as well" if waited else "; --wait-for-subscribers 1 waits for one"
        if isinstance(report, LiveReplayReport) and not waited:
            remedy = " on the channels of the recorded messages"  # live programs were there, see the notes of the cast
        click.secho(f"nobody was listening{remedy}", fg="yellow", err=True)


def show_stopped(report: ReplayReport, as_json: bool) -> None:
    """Print what was done before an error, which is printed afterwards."""
    if as_json:
        print_json(report.to_dict())
        return
    note(f"stopped after {report.published:,} messages")
    for _, line in _failures(report):
        note(line)


def _show_dry_run(report: ReplayReport) -> None:
    would = plural(report.planned - report.failed, "message")
    click.echo(f"would publish {would}, and skip {plural(report.skipped, 'event')}")
    if report.channels:
        ranked = sorted(report.channels.items(), key=lambda item: (-item[1], item[0]))
        table([Column("MESSAGES", 1), Column("CHANNEL", 0, _cut)], ranked[:SHOWN])
        if len(ranked) > SHOWN:
            note(f"and {len(ranked) - SHOWN:,} more channels")
    if report.failed:
        facts([("refused", f"{plural(report.failed, 'message')}, certainly"), *_failures(report)])


def _result(report: ReplayReport) -> list[tuple[str, str]]:
    from ..lockstep.live_replay import LiveReplayReport
    from ..replay import ReplayState

    rate = report.published / report.duration_s if report.duration_s else 0.0
    requested = "max" if report.requested_speed is None else f"{report.requested_speed:g}"
    achieved = "-" if report.achieved_speed is None else f"{report.achieved_speed:,.4g}"
    unheard = "unknown: the broker does not report it" if report.no_subscriber is None else f"{report.no_subscriber:,}"
    ended = "" if report.state is ReplayState.FINISHED else ", ended before the last message"
    published = f"{plural(report.published, 'message')} in {length(report.duration_s)} ({rate:,.0f} a second){ended}"
    lines = [
        ("published", published),
        ("skipped", f"{plural(report.skipped, 'event')}: not messages, filtered out, or of the server"),
        ("no subscriber", unheard),
        ("held back", length(report.held_back_s) + (" for slow subscribers" if report.held_back_s else "")),
    ]
    if not isinstance(report, LiveReplayReport):
        lines.append(("speed", f"{achieved} times (requested: {requested})"))
    if report.seeks:
        lines.append(("seeks", _seeks(report)))
    if report.requested_rate is not None:
        lines.append(("rate", f"at most {report.requested_rate:,.4g} messages a second"))
    lag = report.to_dict()["lag_ms"]
    if lag["p50"] is not None:
        lines.append(("lag", f"p50 {lag['p50']:.2f} ms, p99 {lag['p99']:.2f} ms, max {lag['max']:.2f} ms"))
    if report.failed:
        lines += [("refused", f"{plural(report.failed, 'message')}, which were not published"), *_failures(report)]
    if not report.flow_control:
        lines.append(("flow control", "off: the broker does not report the backlog of its subscribers"))
    return lines


def _seeks(report: ReplayReport) -> str:
    counts = [
        f"{plural(report.repeated, 'message')} repeated",
        f"{report.passed_over:,} passed over",
        f"{report.state_messages:,} of a state published",
    ]
    return f"{report.seeks:,}: {', '.join(counts)}"


def _failures(report: ReplayReport) -> Iterator[tuple[str, str]]:
    """Yield a fact, without a name, for each failure in the report, and one for the others."""
    for one in report.failures:
        count = plural(one.messages, "message")
        yield "", f"{one.outcome}: {_cut(one.channel)} ({count} from {one.first} on): {one.reason}"
    others = report.failed + report.unknown - sum(one.messages for one in report.failures)
    if others:
        yield "", f"and {others:,} more"


def _show_internal(report: ReplayReport) -> None:
    """Print which messages of the server itself are left out; a dry run lists their channels."""
    if not report.internal:
        return
    left_out = plural(sum(report.internal.values()), "message")
    if report.dry_run:
        named = [("", f"{_cut(channel)} ({plural(n, 'message')})") for channel, n in report.internal.items()]
        more = [("", f"and {plural(len(named) - SHOWN, 'more channel')}")] if len(named) > SHOWN else []
        facts([("left out", f"{left_out} that the server published by itself"), *named[:SHOWN], *more])
        return
    where = _cut(next(iter(report.internal))) + _others(len(report.internal) - 1)
    click.secho(f"{left_out} left out, on {where}: the server published them by itself", fg="yellow", err=True)


def _others(number: int) -> str:
    return f" and {plural(number, 'other channel')}" if number else ""


def _cut(channel: str) -> str:
    return channel if len(channel) <= LONGEST else channel[: LONGEST - 1] + "…"

"""messager info"""

from __future__ import annotations

import json
from typing import Any

import click

from messager import channels

from ...text import length, plural
from ..options import asynchronous, json_option, open_log, store_option
from ..output import Column, facts, identifier, note, print_json, size, table, to_second

RECORDERS = (
    Column("RECORDER", "recorder", identifier),
    Column("ROLE", "role"),
    Column("STATE", "state"),
    Column("EVENTS", "events"),
    Column("HOST", "host"),
    Column("PID", "pid", identifier),
    Column("STARTED", "started_at", lambda time: to_second(time)[:-3]),
    Column("WORST COMMIT", "worst_unacknowledged_ms", lambda ms: f"{ms:.1f} ms" if ms else "-"),
)


@click.command()
@click.argument("exp")
@store_option
@json_option
@asynchronous
async def command(exp: str, store: str, as_json: bool) -> None:
    """Describe one experiment: its name, size, recorders and head."""
    from ...queries.overview import overview

    async with open_log(store) as log:
        of = await log.experiment(exp)
        data = await overview(log, of)
        named = {each.exp_id for name in await log.channels(of) if (each := channels.parse(name)) is not None}
    if as_json:
        print_json(data)
        return
    _show(data)
    if len(named) > 1:
        remedy = "if they are several runs, import the file with --split-by 'channel[1]'"
        note(f"the channels are of {len(named):,} experiments (exps:ID:...): {remedy}")


def _show(data: dict[str, Any]) -> None:
    from ...log.event import iso

    kinds = ", ".join(f"{count:,} {kind}" for kind, count in data["kinds"].items() if count)
    first, last = data["first_ts"], data["last_ts"]
    lines = [
        ("exp_id", data["exp_id"]),
        ("name", data["name"] or "-"),
        ("status", data["status"]),
        ("tags", " ".join(data["tags"]) or "-"),
        *_lineage(data),
        ("created", data["created_at"]),
        ("first event", "-" if first is None else iso(first)),
        ("last event", "-" if last is None else iso(last)),
        ("length", length(data["duration_s"])),
        ("events", f"{data['events']:,}" + (f" ({kinds})" if kinds else "")),
        ("channels", f"{data['channels']:,}"),
        ("agents", f"{data['agents']:,}"),
        ("gaps", str(data["gaps"])),
        ("payloads", size(data["payload_bytes"])),
        ("head", data["head"]),
    ]
    lines += [
        ("redacted", f"{plural(row['events'], 'event')} on {row['at']} by {row['who']}: {row['why']}")
        for row in data["redactions"]
    ]
    lines += [
        (f"meta {key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for key, value in data["meta"].items()
    ]
    lines.append(("store", f"{data['store']} ({size(data['store_bytes'])})"))
    facts(lines)
    if not data["recorders"]:
        return
    click.echo()
    table(RECORDERS, data["recorders"], spares=("PID", "STARTED"))
    _show_unrecorded(data)


def _lineage(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines about the parent and the forks. A point in brackets is one of the parent."""
    found = []
    if (parent := data["parent"]) is not None:
        changed = {True: "", False: ", which has changed since", None: ", which is not in this store"}
        head = f"; its head was {parent['head'][:12]}{changed[parent['head_unchanged']]}"
        found.append(("fork of", f"{parent['exp_id']}{_until(parent, parent['cursor'])}{head}"))
    found += [("fork", f"{fork['exp_id']}{_until(fork, None)}") for fork in data["forks"]]
    return found


def _until(part: dict[str, Any], otherwise: str | None) -> str:
    point = part["point"] or otherwise
    if part["at"] is None:
        return f" until {point}" if point else ""
    return f" until {part['at']}" + (f" ({point})" if point else "")


def _show_unrecorded(data: dict[str, Any]) -> None:
    from ...recording.unheard import unheard_by

    for row in data["recorders"]:
        for line in unheard_by(row["meta"]):
            click.echo(f"{click.style('not recorded', fg='yellow')}  recorder {row['recorder']}: {line}")

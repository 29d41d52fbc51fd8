"""Positions of names in counts: an examiner has a list of names of its own, and the page knows those of the server."""

from __future__ import annotations

from typing import Any

from ..columns import Names

Values = dict[str, list[tuple[int, str]]]


def with_values(answer: dict[str, Any], names: Names) -> dict[str, Any]:
    """Return counts with the names at their positions as they are stored, in place of the texts to show."""
    agents, channels = ({entry[0] for entry in answer["names"][of]} for of in ("agents", "channels"))
    values = {
        "agents": [(at, value.decode()) for value, at in names.agents.items() if at in agents],
        "channels": [(at, value) for value, at in names.channels.items() if at in channels],
    }
    return {**answer, "names": values}


def renamed(answer: dict[str, Any], names: Names) -> dict[str, Any]:
    """Return an answer with the positions of another list, which gets its new names, if it is one of `with_values`."""
    if "names" not in answer:
        return answer
    values: Values = answer["names"]
    agents = {at: names.agents.setdefault(value.encode(), len(names.agents) + 1) for at, value in values["agents"]}
    channels = {at: names.channels.setdefault(value, len(names.channels) + 1) for at, value in values["channels"]}
    made = {**answer, "names": names.listed({*agents.values()}, {*channels.values()}, set())}
    if "series" in answer:
        places = channels if answer["by"] == "channel" else agents
        made["series"] = [{**one, "at": places.get(one["at"], one["at"])} for one in answer["series"]]
    if "pairs" in answer:
        columns = channels if answer["across"] == "channel" else agents
        made["pairs"] = [
            {**one, "from": agents.get(one["from"], 0), "to": columns.get(one["to"], 0)} for one in answer["pairs"]
        ]
    return made

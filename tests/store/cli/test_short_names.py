"""Names that are too wide for a column keep the parts that tell them apart."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from messager_store.cli.commands.delays import _show
from messager_store.cli.commands.events import _Lines
from messager_store.cli.short_names import KNOWN, ShortNames, short_names
from messager_store.log.selection import Selection
from messager_store.queries.delays import Delay
from tests.store.cli.test_output import terminal_of

RUN = "exps:69edae6a-75c9-49f9-82fa-d8ab499d2b73:"
SOCIETY = [
    *(f"{RUN}agents:{agent}:{topic}" for agent in range(1, 13) for topic in ("agent-chat", "user-survey")),
    *(f"{RUN}user-payback", f"{RUN}news"),
]
GAMES = [f"exps:jsai2026_truck_freeform5-game{number}:broadcast:agent-chat" for number in range(1, 12)]


@pytest.mark.parametrize(
    ("names", "width", "shown"),
    [
        (GAMES[:3], 80, GAMES[:3]),
        (GAMES[:3], 27, [f"…game{number}:broadcast:agent-chat" for number in (1, 2, 3)]),
        (GAMES[:3], 26, ["…game1…", "…game2…", "…game3…"]),
        (
            [*SOCIETY[:3], SOCIETY[-1]],
            24,
            ["…agents:1:agent-chat", "…agents:1:user-survey", "…agents:2:agent-chat", "…news"],
        ),
        (["*:agents:1:agent-chat"], 16, ["*:agen…gent-chat"]),
        ([f"{'x' * 40}{mark}{'y' * 40}" for mark in "ab"], 9, ["…xxxayyy…", "…xxxbyyy…"]),
        (["ab" * 30], 9, ["aba…babab"]),
    ],
)
def test_names_lose_what_they_have_in_common(names: list[str], width: int, shown: list[str]) -> None:
    assert list(short_names(names, width).values()) == shown


@pytest.mark.parametrize("width", [10, 12, 16, 20, 26, 40, 60])
@pytest.mark.parametrize("names", [SOCIETY, GAMES, [*SOCIETY, *GAMES, "total", "*:news"]])
def test_names_stay_distinct_and_fit(names: list[str], width: int) -> None:
    shown = short_names(names, width)
    assert list(shown) == names and len(set(shown.values())) == len(names)
    assert max(map(cell_len, shown.values())) <= width


@given(st.lists(st.text("ab1:*日", max_size=12), unique=True, max_size=8), st.integers(3, 14))
def test_any_names_fit_and_those_that_fit_have_themselves(names: list[str], width: int) -> None:
    shown = short_names(names, width)
    assert list(shown) == names and all(cell_len(text) <= width for text in shown.values())
    if all(cell_len(name) <= width for name in names):
        assert list(shown.values()) == names


def test_names_that_are_known_stay_distinct_from_new_ones() -> None:
    names = ShortNames()
    shown = [names.of([name], 12)[name] for name in SOCIETY]
    assert len(set(shown[1:])) == len(shown) - 1
    for number in range(3 * KNOWN):
        assert len(names.of([f"channel-{number}-of-many"], 12)) <= KNOWN + 1


@pytest.mark.parametrize("columns", [80, 140])
def test_channels_of_events_can_be_told_apart(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(columns))
    entry = {"time": "2026-03-01T10:00:00.123Z", "kind": "sent", "from_id": 1, "to_id": 2, "text": "x" * 200}
    page: Any = [SimpleNamespace(**entry, channel=channel) for channel in [*SOCIETY, *GAMES, "exps:e:news"]]
    _Lines(Selection(), False, "e").show(page)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()[1:]
    assert {cell_len(line) for line in lines} == {columns}
    shown = [line.split()[5] for line in lines]
    assert len(set(shown)) == len(page) and shown[-1] == "*:news"


def test_channels_of_delays_can_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    rows = [Delay((name,), "delivery", 9, 10**6, 10**6, 10**6, 10**6, 0) for name in SOCIETY]
    total = Delay((), "delivery", 99, 10**6, 10**6, 10**6, 10**6, 0)
    made: Any = SimpleNamespace(by="channel", names=("channel",), replies=False, total=total, rows=rows, notes=())
    _show(made, 40)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80 and len({line.split()[0] for line in lines}) == len(SOCIETY) + 2

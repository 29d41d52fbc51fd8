"""Measuring: two sides in turn, several rounds, and what came of it."""

from __future__ import annotations

import contextlib
import gc
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .rows import Row

if TYPE_CHECKING:
    from messager.testing import MqttServer, RedisServer

T = TypeVar("T")

Values = Mapping[str, float]
"""What one side found: the figures that rows name, and others, which are told beside them."""


class Unavailable(Exception):
    """A row cannot be measured here: its peer, or the room it needs, is missing."""


class Pair(Protocol):
    """Two sides. Each call does the whole work once; what is made in advance is made in `__init__`."""

    def ours(self) -> Values:
        """Our figures."""

    def theirs(self) -> Values:
        """The figures that ours are held against."""


@dataclass
class Stage:
    """What the sides work with: a folder, a Redis, an MQTT broker, and how many events the large store has."""

    folder: Path
    events: int
    keep: Path | None
    say: Callable[[str], None]
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _server: RedisServer | None = None
    _mqtt: MqttServer | None = None
    _numbers: int = 0
    shared: dict[str, Any] = field(default_factory=dict)
    """What one pair made and another may use."""

    @property
    def server(self) -> RedisServer:
        """A Redis of the run's own, started when it is first asked for."""
        from messager.testing import redis_server

        if self._server is None:
            self._server = self._stack.enter_context(redis_server())
        return self._server

    @property
    def mqtt(self) -> MqttServer:
        """An MQTT broker of the run's own, started when it is first asked for."""
        from messager.testing import mqtt_server

        if self._mqtt is None:
            self._mqtt = self._stack.enter_context(mqtt_server())
        return self._mqtt

    def enter(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Something that lasts as long as the run."""
        return self._stack.enter_context(context)

    def fresh(self, ending: str = ".db") -> Path:
        """A path that nothing is at."""
        self._numbers += 1
        return self.folder / f"{self._numbers}{ending}"

    def close(self) -> None:
        """Stop what was started."""
        self._stack.close()


@contextlib.contextmanager
def stage(events: int, keep: Path | None, say: Callable[[str], None]) -> Iterator[Stage]:
    """A stage in a temporary folder, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="messager-bench-") as folder:
        made = Stage(Path(folder), events, keep, say)
        try:
            yield made
        finally:
            made.close()


@dataclass
class Result:
    """What a row came to: figures, or why there are none."""

    row: Row
    ratio: float = 0.0
    """The median over the rounds."""
    spread: tuple[float, float] = (0.0, 0.0)
    ours: float = 0.0
    theirs: float = 0.0
    rounds: int = 0
    extra: dict[str, float] = field(default_factory=dict)
    failed: str | None = None
    skipped: str | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none, or no figure."""
        return None if self.failed or self.skipped else self.row.met(self.ratio, self.ours)

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON takes it."""
        row = self.row
        data: dict[str, Any] = {"row": row.name, "what": row.what, "against": row.against}
        for key in ("failed", "skipped"):
            if getattr(self, key):
                return {**data, key: getattr(self, key)}
        return {
            **data,
            "ratio": _rounded(self.ratio),
            "spread": [_rounded(value) for value in self.spread],
            "target": row.target,
            "better": "lower" if row.at_most else "higher",
            "ceiling": row.ceiling,
            "met": self.met,
            "ours": _rounded(self.ours),
            "theirs": _rounded(self.theirs),
            "unit": row.unit,
            "rounds": self.rounds,
            "extra": {name: _rounded(value) for name, value in self.extra.items()},
        }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)


def measured(together: Sequence[Row], on: Stage, rounds: int) -> list[Result]:
    """The results of rows that share a pair. What goes wrong is told in them, not raised."""
    most = [row.most_rounds for row in together if row.most_rounds]
    rounds = min([rounds, *most])
    names = ", ".join(row.name for row in together)
    try:
        on.say(f"{names}: getting ready")
        module, _, factory = together[0].pair.partition(":")
        pair: Pair = getattr(import_module(f"bench.{module}"), factory)(on)
        try:
            ours, theirs = _alternate(pair, rounds, lambda number: on.say(f"{names}: round {number} of {rounds}"))
        finally:
            getattr(pair, "close", lambda: None)()
    except Unavailable as error:
        return [Result(row, skipped=_one_line(error)) for row in together]
    except Exception as error:
        return [Result(row, failed=f"{type(error).__name__}: {_one_line(error)}") for row in together]
    shown = {row.value for row in together}
    return [_result(row, ours, theirs, shown) for row in together]


def _alternate(pair: Pair, rounds: int, tell: Callable[[int], None]) -> tuple[list[Values], list[Values]]:
    """Both sides once a round; who goes first changes every round."""
    found: tuple[list[Values], list[Values]] = ([], [])
    sides = (pair.ours, pair.theirs)
    for number in range(1, rounds + 1):
        tell(number)
        for which in (0, 1) if number % 2 else (1, 0):
            gc.collect()
            found[which].append(sides[which]())
    return found


def _result(row: Row, ours: list[Values], theirs: list[Values], shown: set[str]) -> Result:
    pairs = [(mine[row.value], other[row.value]) for mine, other in zip(ours, theirs, strict=True)]
    ratios = sorted(mine / other for mine, other in pairs)
    extra = {}
    for side, values in (("ours", ours), ("theirs", theirs)):
        for name in values[0].keys() - shown:
            extra[f"{side}_{name}"] = statistics.median(value[name] for value in values)
    return Result(
        row,
        statistics.median(ratios),
        (ratios[0], ratios[-1]),
        statistics.median(mine for mine, _ in pairs),
        statistics.median(other for _, other in pairs),
        len(pairs),
        dict(sorted(extra.items())),
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def teller(stream: Any = None) -> Callable[[str], None]:
    """Says on stderr what is being done: on a terminal in one line, which is written over."""
    to = stream or sys.stderr
    if not to.isatty():
        return lambda text: print(text, file=to, flush=True) if text else None
    return lambda text: print(f"\r\x1b[K{text}", end="", file=to, flush=True)

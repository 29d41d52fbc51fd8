"""Measurement of rows: two sides alternately, for several rounds."""

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

from .rows import SOCIETY, Row

if TYPE_CHECKING:
    from messager.testing import MqttServer, RedisServer

T = TypeVar("T")

Values = Mapping[str, float]
"""Figures of one side: those that rows use, and additional ones, which JSON output contains as `extra`."""


class Unavailable(Exception):
    """A row cannot be measured here: its peer or the required disk space is missing."""


class Pair(Protocol):
    """Two sides. Each call does the whole work once; `__init__` does the preparation."""

    def ours(self) -> Values:
        """Return our figures."""

    def theirs(self) -> Values:
        """Return the figures that ours are compared with."""


@dataclass
class Stage:
    """Resources of a run: a folder, a Redis, an MQTT broker, and the number of events of the large store."""

    folder: Path
    events: int
    keep: Path | None
    say: Callable[[str], None]
    society: int = SOCIETY
    """Number of events of the store that the rows about analysis ask."""
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _server: RedisServer | None = None
    _mqtt: MqttServer | None = None
    _numbers: int = 0
    shared: dict[str, Any] = field(default_factory=dict)
    """Objects that one pair created and others use."""

    @property
    def server(self) -> RedisServer:
        """The Redis of this run, started on first use."""
        from messager.testing import redis_server

        if self._server is None:
            self._server = self._stack.enter_context(redis_server())
        return self._server

    @property
    def mqtt(self) -> MqttServer:
        """The MQTT broker of this run, started on first use."""
        from messager.testing import mqtt_server

        if self._mqtt is None:
            self._mqtt = self._stack.enter_context(mqtt_server())
        return self._mqtt

    def enter(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Enter a context that ends with the run."""
        return self._stack.enter_context(context)

    def new_path(self, ending: str = ".db") -> Path:
        """Return a new path."""
        self._numbers += 1
        return self.folder / f"{self._numbers}{ending}"

    def close(self) -> None:
        """Stop the servers."""
        self._stack.close()


@contextlib.contextmanager
def stage(events: int, keep: Path | None, say: Callable[[str], None], society: int = SOCIETY) -> Iterator[Stage]:
    """Yield a stage in a temporary folder, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="messager-bench-") as folder:
        made = Stage(Path(folder), events, keep, say, society)
        try:
            yield made
        finally:
            made.close()


@dataclass
class Result:
    """Result of a row: figures, or the reason why there are none."""

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
        """True if the target is met; None without a target or figure."""
        return None if self.failed or self.skipped else self.row.met(self.ratio, self.ours)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict for JSON."""
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


def measure(together: Sequence[Row], on: Stage, rounds: int) -> list[Result]:
    """Measure rows that share a pair. Errors are part of the results and are not raised."""
    most = [row.max_rounds for row in together if row.max_rounds]
    rounds = min([rounds, *most])
    names = ", ".join(row.name for row in together)
    try:
        on.say(f"{names}: preparing")
        module, _, factory = together[0].pair.partition(":")
        pair: Pair = getattr(import_module(f"bench.{module}"), factory)(on)
        try:
            ours, theirs = _run_rounds(pair, rounds, lambda number: on.say(f"{names}: round {number} of {rounds}"))
        finally:
            getattr(pair, "close", lambda: None)()
    except Unavailable as error:
        return [Result(row, skipped=_one_line(error)) for row in together]
    except Exception as error:
        return [Result(row, failed=f"{type(error).__name__}: {_one_line(error)}") for row in together]
    shown = {row.value for row in together}
    return [_result(row, ours, theirs, shown) for row in together]


def _run_rounds(pair: Pair, rounds: int, tell: Callable[[int], None]) -> tuple[list[Values], list[Values]]:
    """Run both sides once per round; the side that goes first alternates."""
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


def progress_printer(stream: Any = None) -> Callable[[str], None]:
    """Return a function that prints progress on stderr; on a terminal each line overwrites the previous one."""
    to = stream or sys.stderr
    if not to.isatty():
        return lambda text: print(text, file=to, flush=True) if text else None
    return lambda text: print(f"\r\x1b[K{text}", end="", file=to, flush=True)

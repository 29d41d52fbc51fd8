"""The bench runs and reports its figures. Speed is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import walking
from bench.measure import Stage, Values, measure
from bench.rows import NAMES, ROWS, Row
from bench.run import main

ROOT = Path(__file__).resolve().parents[2]


class Halves:
    """Pair with the ratio 2, except in the second round, where it is 5."""

    def __init__(self, stage: Stage) -> None:
        self.calls: list[str] = []
        self.stage = stage
        stage.shared["calls"] = self.calls

    def ours(self) -> Values:
        self.calls.append("ours")
        return {"rate": 10.0 if len(self.calls) in (3, 4) else 4.0, "flush_s": 0.5}

    def theirs(self) -> Values:
        self.calls.append("theirs")
        return {"rate": 2.0}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, 1_000_000, None, lambda text: None)


def test_every_row_is_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--list"])
    main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)


def test_a_row_that_there_is_not_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "append", "nothing"])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert ended.value.code == 2 and not told.out
    assert told.err.count("\n") == 1 and "nothing" in told.err and "append-eventsourcing" in told.err


@pytest.mark.nightly
def test_a_row_is_one_json_object() -> None:
    command = [sys.executable, "-m", "bench.run", "startup-cli", "--here", "--json", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["row"] == "startup-cli" and found["rounds"] == 1 and found["unit"] == "s"
    assert found["ours"] > 0 and found["theirs"] > 0


def test_sides_take_turns_and_the_median_counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.startup.Halves", Halves, raising=False)
    row = Row("halves", "this", "that", "startup:Halves", 1.5)
    (result,) = measure([row], stage, 3)
    assert stage.shared["calls"] == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert (result.ratio, result.spread, result.met) == (2.0, (2.0, 5.0), True)
    assert result.to_dict()["extra"] == {"ours_flush_s": 0.5}


def test_a_row_that_fails_says_why(stage: Stage) -> None:
    (result,) = measure([Row("broken", "this", "that", "startup:Nobody", 1.0)], stage, 3)
    assert result.failed is not None and "Nobody" in result.failed
    assert result.met is None


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=() if row.name == "verify" else pytest.mark.nightly)
        for row in ROWS
        if row.pair.startswith("walking:")
    ],
)
def test_a_verb_and_its_loop_count_the_same_events(row: Row, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "EVENTS", 300)
    (result,) = measure([row], stage, 1)
    assert result.failed is None and result.ratio > 0

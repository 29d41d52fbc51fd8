"""Timestamps do not step."""

from __future__ import annotations

from messager import Clock


def test_a_stepped_wall_clock_changes_nothing_after_the_anchor() -> None:
    wall, monotonic = 1_000_000, 500
    clock = Clock(wall=lambda: wall, monotonic=lambda: monotonic)
    before = clock.now()
    wall -= 900_000
    monotonic += 7
    assert clock.now() == before + 7


def test_readings_of_the_monotonic_clock_are_placed_on_the_same_line() -> None:
    clock = Clock(wall=lambda: 1_000, monotonic=lambda: 40)
    assert clock.at(45) == 1_005


def test_the_anchor_is_the_reading_that_was_interrupted_least() -> None:
    readings = iter([0, 1000, 2000, 2010, 3000, 3500, 4000, 4800, 5000, 5900])  # pairs around each wall reading
    walls = iter([500, 2005, 3000, 4000, 5000])
    clock = Clock(wall=lambda: next(walls), monotonic=lambda: next(readings))
    assert (clock.wall_ns, clock.monotonic_ns) == (2005, 2005)

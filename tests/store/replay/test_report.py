"""Figures of a replay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from messager_store.replay.report import LagHistogram, ReplayReport


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.sampled_from([0.5, 0.99, 1.0]))
def test_percentiles_are_right_to_one_part_in_sixty_four(lags: list[int], share: float) -> None:
    histogram = LagHistogram()
    for lag in lags:
        histogram.add(lag)
    exact = sorted(lags)[max(0, -(-int(share * 1000) * len(lags) // 1000) - 1)]
    found = histogram.percentile(share)
    assert found is not None
    assert exact <= found <= min(exact + exact / 64, max(lags))
    assert sum(lag <= found for lag in lags) >= share * len(lags)
    assert histogram.max == max(lags)


def test_without_messages_there_is_no_lag() -> None:
    data = ReplayReport("e", None).to_dict()
    assert data["lag_ms"] == {"p50": None, "p99": None, "max": None}
    assert data["requested_speed"] == "max"
    assert data["achieved_speed"] is None

"""Percentiles are those of the sorted values, however the values are kept."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager_store.queries import percentiles
from messager_store.queries.percentiles import Durations

values = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)


@given(st.lists(st.lists(values), min_size=1, max_size=4), st.integers(1, 100), st.integers(1, 5))
def test_a_percentile_is_the_nearest_rank_of_all_values(groups: list[list[int]], percent: int, sorted_at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(percentiles, "SORTED", sorted_at)
        made = []
        for group in groups:
            made.append(Durations())
            for value in group:
                made[-1].add(value)
        everything = sorted(value for group in groups for value in group)
        if not everything:
            with pytest.raises(ValueError, match="no durations"):
                percentiles.percentiles(made, [percent])
            return
        wanted = [everything[math.ceil(len(everything) * each / 100) - 1] for each in (percent, 100)]
        assert percentiles.percentiles(made, [percent, 100]) == wanted

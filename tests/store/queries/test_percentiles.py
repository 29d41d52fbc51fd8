"""Percentiles are those of the sorted values, however the values are kept."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messager_store.queries import percentiles

values = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)


@given(st.lists(values), st.integers(1, 100), st.integers(1, 5))
def test_a_percentile_is_the_nearest_rank_of_all_values(of: list[int], percent: int, sorted_at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(percentiles, "SORTED", sorted_at)
        if not of:
            with pytest.raises(ValueError, match="no values"):
                percentiles.percentiles(array("q"), [percent])
            return
        wanted = [sorted(of)[math.ceil(len(of) * each / 100) - 1] for each in (percent, 100)]
        assert percentiles.percentiles(array("q", of), [percent, 100]) == wanted

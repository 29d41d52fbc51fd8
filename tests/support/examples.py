"""Number of examples of property tests. Import this from test modules only: the profile is loaded before them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

WITH_STORE = settings(
    max_examples=settings.default.max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
"""For tests that use a store or a broker in each example: a fifth of the profile's examples."""

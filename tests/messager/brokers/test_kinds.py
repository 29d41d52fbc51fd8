"""Kinds of brokers are found by URL, and without their drivers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from messager.brokers import BROKER_KINDS, BrokerKind, kind_of


@pytest.mark.parametrize("kind", BROKER_KINDS, ids=lambda kind: kind.name)
def test_each_scheme_leads_to_its_kind_however_it_is_written(kind: BrokerKind) -> None:
    for scheme in kind.schemes:
        assert kind_of(f"{scheme}://localhost") is kind_of(f"{scheme.upper()}://localhost") is kind


def test_the_scheme_of_a_broker_that_somebody_else_wrote_counts_as_redis() -> None:
    assert kind_of("carrier-pigeon://roof") is kind_of("redis://localhost")


def test_the_properties_of_a_kind_need_no_driver() -> None:
    look = """
import sys
from messager.brokers import BROKER_KINDS
for kind in BROKER_KINDS:
    kind.matches("a/+", b"a/b"), kind.is_internal(b"a"), kind.publish_fault(b"a", 1), kind.check_pattern("a")
sys.exit(str([name for name in ("redis", "paho", "aiomqtt", "pydantic") if name in sys.modules] or ""))
"""
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    assert not done.stderr.strip(), done.stderr

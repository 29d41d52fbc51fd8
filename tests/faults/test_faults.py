"""Short form of the fault harness: each fault is tried a few times, and no promise is broken."""

from __future__ import annotations

import random
import re
import secrets
from pathlib import Path

import pytest

from tests.support import ROOT

from . import every_fault
from .__main__ import made
from .row import Run

FAULTS = every_fault()
NIGHTLY = pytest.mark.nightly
SEED = 2026
IN_MAKE_TEST = {
    "sigkill-buffered",
    "sigkill-strict",
    "kill-drain",
    "kill-migration",
    "redis-killed",
    "lockstep-crashed",
}
"""The rows of `make test`; the others are nightly."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.timeout(2 * fault.seconds), *([] if name in IN_MAKE_TEST else [NIGHTLY])])
        for name, fault in FAULTS.items()
    ],
)
async def test_no_promise_is_broken_by_the_fault(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    fault, seed = FAULTS[name], secrets.randbelow(1 << 32) if pytestconfig.getoption("nightly") else SEED
    if not fault.possible:
        pytest.skip(f"{fault.needs} is not on PATH")
    row = await made(fault, Run(fault.short, tmp_path, random.Random(f"{seed} {name}")))
    assert row.kept, f"`python -m tests.faults --only {name} --seed {seed}`: {row.as_dict()}"


def test_the_page_on_reliability_names_every_row_and_no_other() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = re.findall(
        r"\| ([^|]*) \|$", page.split("## Guarantees and limits")[1].split("## Not covered by")[0], re.MULTILINE
    )
    assert set(re.findall(r"`([a-z-]+)`", " ".join(rows))) == set(FAULTS)

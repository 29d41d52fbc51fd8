"""The plugin works beside others that record, take snapshots or run async tests."""

from __future__ import annotations

import pytest

from .shop import TALK, TEST, Shop, changed, text_of

OTHERS = {
    "recording": "pytest_recording",
    "inline_snapshot": "inline_snapshot",
    "syrupy": "syrupy",
    "asyncio": "pytest_asyncio",
    "anyio": "anyio",
    "xdist": "xdist",
    "timeout": "pytest_timeout",
}
"""Modules of the plugins, by the names of their entry points."""
USES = {
    "recording": """
@pytest.mark.vcr
@pytest.mark.block_network
@pytest.mark.recording("shop.jsonl")
def test_other(replay, vcr):
    replay(3, seller)
    assert vcr.play_count == 0
""",
    "inline_snapshot": """
from inline_snapshot import snapshot

@pytest.mark.recording("shop.jsonl")
def test_other(replay):
    assert replay(3, seller).total("matched") == snapshot(2)
""",
    "syrupy": """
@pytest.mark.recording("shop.jsonl")
def test_other(replay, snapshot):
    assert replay(3, seller).total("matched") == snapshot
""",
}


@pytest.fixture
def recorded(shop: Shop) -> Shop:
    shop.record(TALK)
    return shop


def test_vcrpy_plays_its_cassette_while_an_agent_is_live(recorded: Shop) -> None:
    pytest.importorskip("vcr")
    recorded.write("""
import vcr

@pytest.mark.recording("shop.jsonl")
def test_it(replay, tmp_path):
    with vcr.use_cassette(str(tmp_path / "a.yaml"), record_mode="none"):
        replay(3, seller)
""")
    recorded.run().assert_outcomes(passed=1)


def test_all_of_them_together(recorded: Shop) -> None:
    for module in OTHERS.values():
        pytest.importorskip(module)
    recorded.write(TEST + "".join(uses.replace("test_other", f"test_{name}") for name, uses in USES.items()))
    options = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "--recording-unused")
    result = recorded.run(*options, "--record-mode=none", "--snapshot-update", plugins=("messager", *OTHERS))
    result.assert_outcomes(passed=1 + len(USES))
    recorded.write(agents=changed('"pear": 3', '"pear": 4'))
    shown = text_of(recorded.run(plugins=("messager", *OTHERS)))
    assert "agent 3 differs from the recording after 1 of 2 messages" in shown


def test_a_fixture_of_the_project_called_replay_takes_its_place(recorded: Shop) -> None:
    recorded.write("\n@pytest.fixture\ndef replay():\n    return 5\n\ndef test_it(replay):\n    assert replay == 5\n")
    recorded.run().assert_outcomes(passed=1)


def test_a_project_that_does_not_use_it_does_not_notice_it(recorded: Shop) -> None:
    recorded.write("\ndef test_it():\n    pass\n", "")
    shown = text_of(recorded.run("--strict-markers", "-W", "error"))
    assert "recording" not in shown and "1 passed" in shown

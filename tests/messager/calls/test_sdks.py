"""Calls of SDKs, each in its newest version, are recorded once, and served as they were with the network refused."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.frameworks import python_with

CLIENTS = {"anthropic": "httpx2", "google-genai": "httpx2", "ollama": "httpx", "boto3": "urllib3", "litellm": "httpx"}
"""Client that reports the calls of an SDK: litellm has aiohttp below httpx, which reports nothing."""
UNREAD = {"litellm": 1}
"""Streams that an SDK does not read to their end: litellm leaves the last event of one of Anthropic's."""
PROGRAM = ROOT / "tests" / "support" / "model_sdks.py"


@pytest.mark.nightly
@pytest.mark.parametrize("made", ["after", "before"])
@pytest.mark.parametrize("sdk", CLIENTS)
def test_calls_of_an_sdk_are_recorded_once_and_served_with_the_network_refused(
    sdk: str, made: str, record_property: Any
) -> None:
    command = [python_with(sdk), PROGRAM, sdk, *(["--before"] if made == "before" else [])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    record_property("version", report["version"])
    print(sdk, report["version"], file=sys.stderr)
    for case in report["cases"].values():
        assert case["served"] == case["recorded"] and case["recorded"]
        assert case["clients"] == [CLIENTS[sdk]]
    assert report["events"] == ["asked", "answered"] * len(report["cases"])
    assert report["unread"] == UNREAD.get(sdk, 0) and report["unseen"] == []

"""What another program says about its stop holds what agents said: it is checked, cut, and safe to print."""

from __future__ import annotations

from typing import Any

import pytest

from messager import channels
from messager_store.lockstep.cast import make_cast
from messager_store.lockstep.divergence_text import divergence_lines
from messager_store.lockstep.prefix import MOST_SHOWN, PrefixDiverged, StopNotice
from tests.support.scenes import questions

HOSTILE = "\x1b[31m\0\ud800\u202e" + "x" * 2 * MOST_SHOWN
DIVERGENCE = {"kind": "different", "part": "agent 1", "agent": 1, "channel": "c", "index": 0, "of": 2, "path": "$"}


@pytest.mark.parametrize(
    "fields",
    [
        dict.fromkeys(("channel", "path", "said", "agent"), HOSTILE) | {"heard": [[HOSTILE, HOSTILE]] * 99},
        {name: [[[HOSTILE]]] for name in ("channel", "path", "said", "agent", "heard")},
        {"heard": [[5, {}], [], 7]},
        {"index": None, "of": {}},
        {"kind": HOSTILE},
        {"kind": [5]},
        {"part": HOSTILE},
        {"index": -1},
        {"index": 10**30},
    ],
    ids=range(9),
)
def test_a_notice_is_safe_whatever_it_holds(fields: dict[str, Any]) -> None:
    parts = make_cast(questions().recording(), "all", channels.encode).parts
    notice = StopNotice.of_dict({"stopped": HOSTILE, "divergence": DIVERGENCE | fields}, parts)
    texts = [notice.reason]
    if notice.divergence is not None:
        texts += [str(PrefixDiverged(notice.divergence)), *(line for _, line in divergence_lines(notice.divergence))]
        assert len(notice.divergence.heard) <= 3
    assert all(text.isprintable() and len(text) < 5 * MOST_SHOWN for text in texts)
    again = StopNotice.of_dict(notice.to_dict(), parts)
    assert again.reason == notice.reason[:MOST_SHOWN]

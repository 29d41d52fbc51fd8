"""The file of a report: what it contains, and what it leaves out when it is shared."""

from __future__ import annotations

import base64
import re
import stat
import zlib
from pathlib import Path

import pytest

from messager_store import EventLog, NewEvent
from messager_store.errors import StoreError
from messager_store.formats.sharing import sharing
from messager_store.log.selection import Selection
from messager_store.queries.overview import overview
from messager_store.view.report import page_of, report
from tests.support.logs import filled, sent

_PART = re.compile(r'<script type="application/octet-stream" data-part="(\w+)" data-run="(\d)">([^<]*)</script>\n')
WORD = "Rosalind"
EVERYWHERE = (
    NewEvent("mark", 1, None, b"", meta={"name": f"{WORD} wakes", "fields": {"who": WORD}}),
    NewEvent("sent", 2, f"exps:e:agents:{WORD}:chat", f'{{"content": "{WORD}?", "to": "{WORD}"}}'.encode(), 1, WORD),
    NewEvent(
        *("sent", 3, f"exps:e:{WORD}", WORD.encode(), WORD, None),
        msg_id=f"id of {WORD}",
        messager=f"the Messager of {WORD}",
    ),
    NewEvent("blocked", 4, f"exps:e:{WORD}", b"x", WORD, 1, meta={"interceptor": WORD, "reason": f"{WORD} said it"}),
    NewEvent("failed", 5, f"exps:e:{WORD}", b"x", WORD, 1, meta={"outcome": "not_sent", "error": f"host of {WORD}"}),
    NewEvent("gap", 6, None, b"", meta={"reason": f"{WORD} left", "since": 1, "until": 6}),
)


def unpacked(html: str) -> bytes:
    """Return everything that a document contains, with its data unpacked."""
    found = [_PART.sub("", html).encode()]
    for kind, _, text in _PART.findall(html):
        data = base64.b64decode(text)
        length = int.from_bytes(data[:4], "little")
        parts = [data[4 : 4 + length], data[4 + length :]] if kind == "chunk" else [data]
        found += map(zlib.decompress, parts)
    return b"\n".join(found)


async def everywhere(log: EventLog, exp_id: str) -> None:
    """Record an experiment with the word in every field."""
    of = await log.create_experiment(exp_id, name=f"{WORD} alone", tags=[WORD], meta={"who": WORD, "host": WORD})
    writer = await log.register(of, role="messager", patterns=[f"exps:e:agents:{WORD}:*"])
    await log.append(writer, list(EVERYWHERE))


async def test_a_pseudonymised_report_names_no_agent_anywhere(log: EventLog) -> None:
    await everywhere(log, f"{WORD}-1")
    selection = Selection(agents=[WORD, 1])
    plain = await page_of(log, f"{WORD}-1", selection, chosen=f"--agent {WORD}")
    assert plain.messages == 4
    assert WORD.encode() in unpacked(plain.html)
    shared = await page_of(log, f"{WORD}-1", selection, chosen=f"--agent {WORD}", shared=sharing((), pseudonymise=True))
    assert shared.messages == plain.messages
    assert WORD.encode() not in unpacked(shared.html)


async def test_a_pseudonymised_report_does_not_lead_back_and_claims_no_verification(log: EventLog) -> None:
    of = await log.create_experiment("trial-17")
    writer = await log.register(of, role="messager", patterns=["exps:trial-17:agents:1:*"])
    await log.append(writer, [sent(1, b"hello", "exps:trial-17:agents:1:chat"), sent(2, b"all", "exps:trial-17:news")])
    head = (await overview(log, of))["head"]
    plain = unpacked((await page_of(log, "trial-17", Selection())).html)
    assert b"trial-17" in plain and head.encode() in plain and b'"ok": true' in plain
    shared = unpacked((await page_of(log, "trial-17", Selection(), shared=sharing((), pseudonymise=True))).html)
    assert b"trial-17" not in shared and head.encode() not in shared and b'"verify": null' in shared
    redacted = unpacked((await page_of(log, "trial-17", Selection(), shared=sharing(["x"], pseudonymise=False))).html)
    assert head.encode() in redacted and b'"verify": null' in redacted


async def test_a_path_that_is_erased_is_not_in_the_report(log: EventLog) -> None:
    await filled(log, [sent(1, b'{"content": "a secret", "n": 1}')])
    shared, chosen = sharing(["content"], pseudonymise=False), "--grep secret"
    page = await page_of(log, "e1", Selection(grep="secret"), chosen=chosen, shared=shared)
    assert page.messages == 1
    assert b"secret" not in unpacked(page.html)
    assert b'"n": 1' in unpacked(page.html)


async def test_more_messages_than_a_page_holds_are_refused_and_nothing_is_written(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(log, [sent(number) for number in range(3)])
    monkeypatch.setattr("messager_store.view.report.page_of.__kwdefaults__", {**page_of.__kwdefaults__, "most": 2})
    with pytest.raises(StoreError, match="more than 2 messages to show: select some"):
        await report(log, "e1", tmp_path / "run.html")
    assert not list(tmp_path.glob("*.html"))
    assert await report(log, "e1", tmp_path / "run.html", until=2) == 2
    assert not stat.S_IMODE((tmp_path / "run.html").stat().st_mode) & 0o111


async def test_a_notebook_shows_the_page_in_a_frame_without_rights(log: EventLog) -> None:
    await filled(log, [sent(1, b'"</iframe><script>alert(1)</script>')])
    frame = (await page_of(log, "e1", Selection()))._repr_html_()
    assert frame.count("<") == 2, "the page is an attribute"
    assert 'sandbox="allow-scripts"' in frame

"""Markdown of events: what agents said is shown as text, whatever it contains."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt

from messager_store.cli.markdown import escaped
from tests.store.cli.conftest import PutImported
from tests.support import messager

SAID = """# Heading
1. item
- [x](http://a.b) ![i](u) <b>bold</b> <http://c.d> &lt; www.x.y me@x.y
---
    code `x` ~~no~~ *a* __b__ | $y$
+ plus
2) two
=== \\ > q

end"""


def test_nothing_that_was_recorded_is_markup(tmp_path: Path, put_imported: PutImported) -> None:
    line = {"ts": 1, "channel": "*c* <i>", "from_id": "# a", "to_id": "[b](c)", "payload": {"content": SAID}}
    put_imported(tmp_path, [line], ("--exp", "e"))
    printed = messager("events", "e", "--markdown", cwd=tmp_path).stdout
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(printed)
    assert {token.type.rpartition("_")[0] for token in tokens} == {"heading", "paragraph", "blockquote", ""}
    heading, facts, *text = [token for token in tokens if token.type == "inline"]
    allowed = {"text", "text_special", "softbreak", "hardbreak", "strong_open", "strong_close"}
    assert {child.type for token in (facts, *text) for child in token.children or []} <= allowed
    assert heading.content == "1970-01-01"
    shown = ["".join(child.content or "\n" for child in token.children or []) for token in text]
    wanted = "\n".join(line.strip() for line in SAID.splitlines())
    assert "\n\n".join(shown) == wanted
    assert "# a → [b](c)" in "".join(child.content for child in facts.children or [])


def test_what_only_some_renderers_know_is_escaped() -> None:
    assert [escaped(text) for text in ("www.a.b", "http://a", "a@b", "$x$", ":tada:", "\x1b[1m")] == [
        *("www\\.a\\.b", "http\\://a", "a\\@b", "\\$x\\$", "\\:tada\\:", "\\\\x1b\\[1m")
    ]

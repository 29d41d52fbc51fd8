"""Recordings whose texts and names try everything against a page that shows them.

A text that is executed assigns to `window.__executed`, which `tests.support.browser.Watch` reports; one that is read as
HTML also requests something from example.com, which it reports too.

The experiment `hostile` has the texts, at common times. Others have extreme times and delays.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from messager import channels
from messager_store import EventLog, Experiment, NewEvent

EXECUTE = "window.__executed="
MARKUP = [
    f"<script>{EXECUTE}'script'</script>",
    f"</script><script>{EXECUTE}'after a closed script'</script>",
    f"</SCRIPT\n><ScRiPt>{EXECUTE}'mixed case'</sCrIpT>",
    f"<!--<script>{EXECUTE}'double escaped'</script>",
    f"--><script>{EXECUTE}'after a comment'</script>",
    f"]]><script>{EXECUTE}'after CDATA'</script>",
    f"</title></style></textarea></noscript></template></xmp><script>{EXECUTE}'after text'</script>",
    f"<img src=x onerror=\"{EXECUTE}'img'\">",
    f"<svg onload=\"{EXECUTE}'svg'\"></svg>",
    f"<svg><script>{EXECUTE}'svg script'</script></svg>",
    f"<math><mtext><table><mglyph><style><!--</style><img title=\"--><img src=x onerror={EXECUTE}'mutated'>\">",
    '"><iframe srcdoc="<script>parent.__executed=\'iframe\'</script>"></iframe>',
    "<iframe src=\"javascript:parent.__executed='frame'\"></iframe>",
    f"<object data=\"data:text/html,<script>{EXECUTE}'object'</script>\"></object>",
    f"<details open ontoggle=\"{EXECUTE}'toggle'\">",
    f'" autofocus onfocus="{EXECUTE}\'focus\'" x="',
    f"' onmouseover='{EXECUTE}1' style='position:fixed;inset:0' x='",
    f"javascript:{EXECUTE}'link'",
    f"[text](javascript:{EXECUTE}'markdown')",
    f"data:text/html,<script>{EXECUTE}'data'</script>",
    f"';{EXECUTE}'quote';//",
    f'";{EXECUTE}"double quote";//',
    f"\\';{EXECUTE}'escaped quote';//",
    f"`;{EXECUTE}'backtick';//",
    f"${{{EXECUTE}'template'}}",
    f"\u2028{EXECUTE}'line separator'\u2029",
    "{{7*7}} ${7*7} #{7*7} <%= 7*7 %>",
    "{{constructor.constructor('window.__executed=1')()}}",
    "<link rel=stylesheet href=//example.com/a.css>",
    "<style>@import url(http://example.com/b.css); * { display: none }</style>",
    "<base href=http://example.com/>",
    "<meta http-equiv=refresh content='0;url=http://example.com/c'>",
    "<form action=http://example.com/d><button autofocus>send</button></form>",
    "<a href=http://example.com/e ping=http://example.com/f>link</a>",
    "http://example.com/g and url(http://example.com/h)",
    "<img src=http://example.com/i><video src=http://example.com/j autoplay></video>",
    "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &#60;b&#62; &nbsp; &copy",
    "<b>bold</b> **bold** _emphasis_ # heading",
    "\x1b[31mred\x1b[0m \x1b]8;;http://example.com/k\x07link\x1b]8;;\x07",
    "'; DROP TABLE event; --",
    "%s %n %1$s {0} {} \\n \\u003cscript\\u003e",
    '#view=matrix&q=%00&agent="x"',
    "../../../../etc/passwd",
]
PROPERTIES = [
    *("__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "valueOf", "__defineGetter__", "length"),
    *("then", "undefined", "null", "true", "NaN", "-0", "0", "1e3", "", " ", "  two  spaces  "),
]
WRITING = [
    "\u202eright to left\u202c \u2066isolate\u2069 \u2067isolate",
    "never closed \u202e\u202e\u2067\u2067",
    "gpj.\u202eexe.txt",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 hello 123",
    "\u200bzero\u200c\u200d width\u2060\ufeff",
    "\ufeffbyte order mark",
    "nul \x00 inside",
    "".join(map(chr, range(1, 32))) + "\x7f",
    "".join(map(chr, range(0x80, 0xA0))),
    "lines\r\nand\rreturns\n\n\n\tand\ttabs\v\f\u0085",
    "\u2028\u2029",
    "\ufffe\uffff\U0001fffe\U0010ffff",
    "\ue000\U000f0000 private",
    "\U000e0041\U000e0042\U000e007f tags",
    "\u3164\u115f\uffa0 fillers",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44b\U0001f3fd \u2764\ufe0f",
    "z\u0351\u036b\u0343" + "\u0300\u0301\u0316\u0325" * 500 + "algo",
    "\u0e01" + "\u0e49" * 300,
    "\ufdfd" * 50,
    "\U0001242b" * 50,
    "Stra\u00dfe STRASSE \u0130\u0131 \u03a3\u03c3\u03c2 \ufb03 \uff46\uff55\uff4c\uff4c \u212b \u00c5 A\u030a",
    "e\u0301\u00e9 \u1100\u1161\u11a8 \uac01",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002" * 20,
    "long" * 10_000,
    "\u00ad".join("soft" * 1000),
    "line\n" * 5000,
    "\n" * 1000,
]
TEXTS = [*MARKUP, *PROPERTIES, *WRITING]

IDS: list[Any] = [
    *(5, "5", 5.0, True, False, 0, -1, 2**53, 2**53 + 1, 2**63, -(2**90), 10**400, 1e308, 1.5, float("nan")),
    *("\ud800", "\udfff\ud800", "x" * 5000, [], {}, ["<b>", {"__proto__": 1}], {"id": 5}, [[[[[5]]]]]),
]
"""Ids of agents beside the texts. JSON keeps 5 and "5" apart."""
CHANNELS = [
    *(
        b"\xff\xfe\x80",
        b"exps:\xc3:agents:7:chat",
        b"exps:hostile:agents:__proto__:chat",
        b"exps::agents::",
        b"a" * 5000,
    ),
    *(b"/", b"//", b"$SYS/a", b"__keyspace@0__:a", b"exps/hostile/agents/7/chat"),
]
"""Channels beside the texts."""
PAYLOADS = [
    b"",
    b"\x00",
    b"\x01",
    b'{"content": "\x01"}',
    b"\xff\xfe not utf-8 \x80",
    b'{"content": "\xff"}',
    bytes(range(256)) * 4,
    b"\xef\xbb\xbf{}",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
    b'"\\ud800"',
    b'{"content": "\\ud800 \\udc00\\ud800 \\ud83d\\ude00"}',
    b"[" * 10_000,
    b"[" * 10_000 + b"]" * 10_000,
    b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    b'{"__proto__": {"executed": 1}, "constructor": {"prototype": 1}, "toString": null}',
    b'{"content": "one", "content": "two", "a": 1, "a": 2}',
    b'{"content": null}',
    b'{"content": {"content": {"content": "deep"}}}',
    b'{"content": ["<b>", 1, null, {"text": "<i>"}]}',
    b'[{"type": "text", "text": "a"}, {"text": 5}]',
    b"[1e308, 1e309, -1e999, 123456789012345678901234567890, 0.1, -0, 1E400]",
    b"[NaN, Infinity, -Infinity]",
    b"9007199254740993",
    b" \r\n\t{}",
    b"{'single': 1}",
    b'{"unterminated": "',
    b"null",
    b"true",
    b'""',
    json.dumps(json.dumps(json.dumps(json.dumps("<script>window.__executed='quoted'</script>")))).encode(),
    json.dumps({f"key {number}": number for number in range(10_000)}).encode(),
    json.dumps({"<script>window.__executed='key'</script>": "<img src=x onerror=window.__executed='value'>"}).encode(),
    json.dumps({"content": "ten megabytes " + "<script>window.__executed=10</script>" * 280_000}).encode(),
]
"""Payloads beside the texts."""

START = 1_772_352_000_000_000_000
"""2026-03-01 08:00 UTC."""
STEP = 10_000_000
"""ns between two messages."""
LIMIT = 2**63 - 1


def events(sender: int) -> Iterator[NewEvent]:
    """Yield what the first recorder has; `sender` is its ordinal."""
    ts = itertools.count(START, STEP)
    for number, text in enumerate(TEXTS):
        other = TEXTS[(number * 7 + 1) % len(TEXTS)]
        yield sent(next(ts), text, in_json(text), from_id=text, to_id=other, msg_id=without_nul(text), messager="first")
        yield sent(next(ts), other, text.encode("utf-8", "surrogatepass"), from_id=other, to_id=text)
        meta = {"interceptor": text, "reason": other}
        yield NewEvent("blocked", next(ts), text, in_json(text), text, other, meta=meta)
        meta = {"outcome": text, "error": text}
        yield NewEvent("failed", next(ts), text, in_json(text), text, other, meta=meta)
        yield NewEvent("mark", next(ts), None, b"", meta={"name": text, "fields": {text: other, "a": text}})
        gap = {"since": START, "until": next(ts), "count": number, "reason": text}
        yield NewEvent("gap", next(ts), None, b"", meta=gap)
        if number:
            yield sent(next(ts), text, in_json("an answer"), from_id=other, to_id=text, cause=(sender, number))
    for number, agent in enumerate(IDS):
        yield sent(
            next(ts), "ids", in_json(f"id {number}"), from_id=agent, to_id=IDS[number - 1], messager=f"{agent!r}"
        )
    for number, channel in enumerate(CHANNELS):
        yield sent(next(ts), channels.decode(channel), in_json(f"channel {number}"), from_id=5, to_id="5")
    for number, payload in enumerate(PAYLOADS):
        yield sent(next(ts), "payloads", payload, from_id=number, to_id=None)
    same = next(ts)
    for number in range(200):
        yield sent(same, "same time", in_json(f"same {number}"), from_id=number % 3, to_id=(number + 1) % 3)
    for meta in ({}, {"name": None}, {"name": ["<b>"], "fields": "<b>"}, {"name": 5, "fields": []}):
        yield NewEvent("mark", next(ts), None, b"", meta=meta)
    for meta in ({}, {"since": LIMIT, "until": -LIMIT}, {"since": "<b>", "count": -1, "reason": {}, "recorder": 2**62}):
        yield NewEvent("gap", next(ts), None, b"", meta=meta)
    for meta in ({}, {"interceptor": {}, "reason": []}, {"outcome": [], "error": {}}):
        yield NewEvent("blocked", next(ts), "payloads", b"x", meta=meta)
        yield NewEvent("failed", next(ts), None, b"", meta=meta)


def places() -> Iterator[tuple[str, str]]:
    """Yield each text and the cursor of the message that says it."""
    for seq, entry in enumerate(events(1), 1):
        if entry.msg_id is not None:
            yield str(entry.channel), f"{entry.ts}:1:{seq}"


def sent(ts: int, channel: str, payload: bytes, **more: Any) -> NewEvent:
    """Return a sending."""
    return NewEvent("sent", ts, channel, payload, **more)


def in_json(text: str) -> bytes:
    """Return the payload of a text as agents send it."""
    return json.dumps({"content": text}, ensure_ascii=len(text) % 2 == 0).encode("utf-8", "surrogatepass")


def without_nul(text: str) -> str:
    """Return text as a column of PostgreSQL holds it."""
    return text.replace("\0", "\u2400")


def received(sendings: list[NewEvent]) -> Iterator[NewEvent]:
    """Yield the receptions of sendings by a second recorder: some before their sending, some twice, some never."""
    delays = itertools.cycle([1, 250_000, 3_000_000, -2_000_000, 90_000_000_000, 0])
    arrival = itertools.count(1)
    for number, entry in enumerate(sendings):
        if number % 11 == 0:
            continue
        for _ in range(2 if number % 13 == 0 else 1):
            yield entry._replace(
                kind="received",
                ts=entry.ts + next(delays),
                messager=TEXTS[number % 40],
                arrival=next(arrival),
                cause=None,
            )


async def hostile(log: EventLog) -> Experiment:
    """Record the experiment `hostile`."""
    of = await log.create_experiment(
        "hostile",
        name=f"</title><script>{EXECUTE}'title'</script> \u202egnp.exe",
        tags=["<img src=x onerror=window.__executed='tag'>", "__proto__", "</script>"],
        meta={"<b>": [f"<script>{EXECUTE}'meta'</script>", None, 2**60], "__proto__": "x", "nan": float("nan")},
    )
    first = await log.register(of, role="messager", patterns=["*", MARKUP[0]])
    second = await log.register(of, role="tap", patterns=["*", *MARKUP, "\u202epattern"])
    logged = list(events(first.ordinal))
    for at in range(0, len(logged), 100):
        await log.append(first, logged[at : at + 100])
    sendings = [entry for entry in logged if entry.kind == "sent" and len(entry.payload) < 1_000_000]
    heard = list(received(sendings))
    for at in range(0, len(heard), 100):
        await log.append(second, heard[at : at + 100])
    return of


async def hostile_times(log: EventLog) -> None:
    """Record the experiments `hostile-times`, before and after 1970, and `hostile-span`, as far apart as can be."""
    around = [-LIMIT - 1, -(2**62), -1_000_000_000, -1, 0, 0, 1, START, START, START + 1, 2**62, LIMIT - 1, LIMIT]
    for exp_id, times in (("hostile-times", around), ("hostile-span", [-LIMIT - 1, LIMIT])):
        of = await log.create_experiment(exp_id)
        first, second = await log.register(of, role="messager"), await log.register(of, role="tap", patterns=["*"])
        said = [
            sent(ts, "times", in_json(f"at {ts}"), from_id=number % 4, to_id="x") for number, ts in enumerate(times)
        ]
        said.append(NewEvent("mark", LIMIT, None, b"", meta={"name": "the end"}))
        said.append(NewEvent("mark", -LIMIT - 1, None, b"", meta={"name": "the begin"}))
        said.append(NewEvent("gap", 0, None, b"", meta={"since": -LIMIT - 1, "until": LIMIT, "count": LIMIT}))
        await log.append(first, said)
        ends = zip(times, reversed(times), strict=True)
        heard = [sent(ts, "times", in_json(f"at {other}"))._replace(kind="received") for ts, other in ends]
        await log.append(second, heard)


async def main(store: str) -> None:
    """Record every hostile experiment into a store."""
    async with EventLog.open(store) as log:
        await hostile(log)
        await hostile_times(log)

"""Traffic of realistic size: files that are given, or generated ones."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

_FOLDER = os.environ.get("MESSAGER_TEST_DATA")
FILES = sorted(Path(_FOLDER).glob("*.jsonl.gz")) if _FOLDER else []
"""Recorded traffic, one message a line: the `.jsonl.gz` files of the folder that MESSAGER_TEST_DATA names."""


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the messages of a file, in its order."""
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().split("\n") if line]


def made(folder: Path, count: int = 30_000) -> Path:
    """Generated traffic that resembles recorded chats: many equal times, steps back in time, many names, long texts."""
    dice = random.Random(8)
    words = ["h\u00e9", "\u65e5\u672c\u8a9e", "ok", "\U0001f600", "over", "bread", "\u2028", "tab\t"]
    ts = 1_700_000_000_000_000_000
    path = folder / "made.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for number in range(count):
            if dice.random() < 0.02:
                ts += dice.choice([60, 60, 3600, -120]) * 1_000_000_000
            payload = {
                "n": number,
                "day": number // 1000,
                "text": " ".join(dice.choices(words, k=dice.randrange(1, 40))),
            }
            line = {
                "ts": ts,
                "kind": "sent",
                "channel": f"exps:g{dice.randrange(40)}:broadcast:agent-chat",
                "from_id": dice.choice([str(dice.randrange(5000)), dice.randrange(20)]),
                "to_id": dice.choice([None, dice.randrange(20)]),
                "payload": json.dumps(payload, ensure_ascii=dice.random() < 0.5),
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return path

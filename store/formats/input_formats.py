"""Formats that `messager import` reads, and the choice of one: by suffix, by the first bytes, or by name."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import StoreError

JSONL = "jsonl"


class InputFormat(NamedTuple):
    """A format: its name for `--format`, its module in this package, and a description for people."""

    name: str
    module: str
    description: str

    def load(self) -> Any:
        """Return the module."""
        return import_module(f".{self.module}", __package__)


INPUT_FORMATS = (
    InputFormat(JSONL, "jsonl", "what `messager export` writes as JSON Lines"),
    InputFormat("agentscope", "foreign.agentscope", "messages of AgentScope 0.x to 2.x"),
    InputFormat("agentsociety", "foreign.agentsociety", "log lists of AgentSociety's Messager (get_log_list)"),
    InputFormat("agentsociety-replay", "foreign.agentsociety_replay", "the folder replay of an AgentSociety 2 run"),
    InputFormat("csv", "foreign.csv_table", "CSV or, as .tsv, tabs; with a header"),
)
"""The formats; the first is that of any file that is not recognised."""
_SUFFIXES = {".csv": "csv", ".tsv": "csv"}
_WRITTEN_ONLY = (".mcap", ".parquet", ".arrow")
_HEAD = 1024 * 1024
"""Bytes that a format is recognised by."""
_REPLAY_SCHEMA = "_schema.json"


def input_format(path: str | os.PathLike[str], name: str | None = None) -> InputFormat:
    """Return the format of a name, or else that of a file. Raise `StoreError` if no format can be read from it."""
    return next(known for known in INPUT_FORMATS if known.name == (name or _recognised(path)))


def _recognised(path: str | os.PathLike[str]) -> str:
    if os.path.isdir(path):
        if (Path(path) / _REPLAY_SCHEMA).exists():
            return "agentsociety-replay"
        raise StoreError(f"{path} is a folder without {_REPLAY_SCHEMA}, so no replay. Name a file.")
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() != ".gz"]
    last = suffixes[-1] if suffixes else ""
    if last in _WRITTEN_ONLY:
        raise StoreError(f"{path}: import does not read {last}. Export the experiment to .jsonl, and import that.")
    return _SUFFIXES.get(last) or _by_content(path, _head(path))


def _by_content(path: str | os.PathLike[str], head: str) -> str:
    keys = _first_keys(head)
    if "ts" in keys or "format" in keys:
        return JSONL
    if {"payload", "start_time"} <= keys and keys & {"channel", "topic"}:
        return "agentsociety"
    if {"name", "content", "role"} <= keys:
        return "agentscope"
    if "t" in keys and (Path(path).parent / _REPLAY_SCHEMA).exists():
        return "agentsociety-replay"
    if '"role"' in head and '"content"' in head and re.search('"(timestamp|created_at)"', head):
        return "agentscope"  # inside the state of an agent or a session
    columns = re.split(r"[,\t]", head.partition("\n")[0].strip().lower())
    return (
        "csv"
        if len(columns) > 1 and {"ts", "time", "timestamp"} & {column.strip(' "') for column in columns}
        else JSONL
    )


def _head(path: str | os.PathLike[str]) -> str:
    """Return the first text of a file, decompressed; nothing if it cannot be read, which its reader will explain."""
    try:
        if str(path) == "-":
            data: bytes = sys.stdin.buffer.peek(_HEAD)  # type: ignore[union-attr]
        else:
            with open(path, "rb") as file:
                zipped = file.read(2) == b"\x1f\x8b"
            with gzip.open(path) if zipped else open(path, "rb") as file:
                data = file.read(_HEAD)
    except (OSError, EOFError, zlib.error, AttributeError):
        return ""
    return data.decode("utf-8-sig", "replace")


def _first_keys(head: str) -> set[str]:
    """Return the keys of the first object of a text, as far as the text goes; the first element of an array counts."""
    keys: set[str] = set()
    opening = re.match(r"\s*\[?\s*\{", head)
    at = opening.end() if opening else len(head)
    while found := _KEY.match(head, at):
        keys.add(found[1])
        try:
            _, at = _DECODER.raw_decode(head, found.end())
        except (ValueError, RecursionError):  # the text ends here
            break
    return keys


_KEY = re.compile(r'[\s,]*"([^"\\]*)"\s*:\s*')
_DECODER = json.JSONDecoder()

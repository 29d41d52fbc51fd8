"""File formats: one module or package per format, and one line in `FORMATS` that registers it for writing.

The module of a format that `messager export` writes has a function, that of `jsonl` for example:

    async write(log, exp_id, path, *, progress=None, shared=None, selection=None) -> int

`input_formats` registers the formats that `messager import` reads.

An outer package. Without it, experiments stay in their store: no export, import, pack and unpack.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import StoreError


class FileFormat(NamedTuple):
    """A file format: its suffixes, its module in this package, its name in messages, and the verb that writes it."""

    suffixes: tuple[str, ...]
    module: str
    name: str
    verb: str
    compressed: bool = False
    """True if the format has a compression of its own, so that `.gz` is not for it."""

    def load(self) -> Any:
        """Return the module."""
        return import_module(f".{self.module}", __name__)


FORMATS = (
    FileFormat((".jsonl", ".ndjson"), "jsonl", "JSON Lines", "export"),
    FileFormat((".mcap",), "mcap", "MCAP", "export", compressed=True),
    FileFormat((".parquet",), "tables", "Parquet", "export", compressed=True),
    FileFormat((".csv",), "tables", "CSV", "export"),
    FileFormat((".pack",), "pack", "a pack", "pack"),
)

PARTITIONS = ("mark", "hour")
"""Values by which Parquet is written in parts, to a folder."""


def output_format(path: str | os.PathLike[str], verb: str) -> FileFormat:
    """Return the format that a verb writes under a file name. Raise `StoreError` for the suffix of another format.

    Suffixes are compared without regard to case; `.gz` may follow those of formats that are not compressed. A name
    without a suffix means the first format of the verb, and so does an existing pipe, device or folder.
    """
    default = next(known for known in FORMATS if known.verb == verb)
    suffix = _suffix(path)
    if not suffix or (os.path.exists(path) and not os.path.isfile(path)):
        return default
    found = _by_suffix(suffix)
    if found is not None and found.verb == verb:
        if found.compressed and str(path).lower().endswith(".gz"):
            raise StoreError(f"{path}: {found.name} is compressed already. Leave out .gz.")
        return found
    remedy = "use " + ", ".join(
        f"{' or '.join(known.suffixes)} for {known.name}" for known in FORMATS if known.verb == verb
    )
    if found is not None:
        remedy += f", or `messager {found.verb}` for {suffix.lower()}"
    raise StoreError(f"{path}: {verb} cannot write a file with the suffix {suffix!r}. {remedy[0].upper()}{remedy[1:]}.")


def _by_suffix(suffix: str) -> FileFormat | None:
    return next((known for known in FORMATS if suffix.lower() in known.suffixes), None)


def _suffix(path: str | os.PathLike[str]) -> str:
    """The last suffix of a file name, without regard to `.gz`."""
    name = Path(path)
    return (name.with_suffix("") if name.suffix.lower() == ".gz" else name).suffix

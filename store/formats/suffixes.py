"""File formats by suffix: the name of an output file decides what may be written to it."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import StoreError

_WRITTEN_BY = {".jsonl": "export", ".ndjson": "export", ".pack": "pack"}
"""Known suffixes, and the verb that writes such files."""
_FORMATS = {"export": "JSON Lines", "pack": "a pack"}


def is_gzip(path: str | os.PathLike[str]) -> bool:
    """Return whether a file of this name is compressed."""
    return Path(path).suffix.lower() == ".gz"


def check_suffix(path: str | os.PathLike[str], verb: str) -> None:
    """Raise `StoreError` if the file name has a suffix of a format that the verb does not write.

    Suffixes are compared without regard to case. `.gz` may follow any of them. A name without a suffix names no
    format, and neither does the name of a pipe, a device or a folder that exists.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        return
    suffix = Path(path).with_suffix("").suffix if is_gzip(path) else Path(path).suffix
    writer = _WRITTEN_BY.get(suffix.lower())
    if not suffix or writer == verb:
        return
    known = " or ".join(end for end, by in _WRITTEN_BY.items() if by == verb)
    remedy = f"Use {known} for {_FORMATS[verb]}, with or without .gz after it"
    if writer is not None:
        remedy += f", or `messager {writer}` for {suffix.lower()}"
    raise StoreError(f"{path}: {verb} cannot write a file with the suffix {suffix!r}. {remedy}.")

"""The limits of exp_ids, names, tags and meta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import json_text, limits
from ..errors import StoreError


def checked_exp_id(exp_id: str) -> str:
    """Return an exp_id if a person can type it. Raises `StoreError` if not."""
    if not exp_id or exp_id != exp_id.strip() or not exp_id.isprintable() or len(exp_id) > 200 or exp_id[0] == "@":
        raise StoreError(
            f"{exp_id!r} cannot be an exp_id: it is 1 to 200 printable characters, "
            "without space at its ends, and does not start with @"
        )
    return exp_id


MOST_TAG, MOST_NAME = 200, 1000
"""Maximum length of a tag, and of the name of an experiment, in characters."""


def checked_name(name: str | None) -> str | None:
    """Return a name if it is valid UTF-8 of at most `MOST_NAME` characters. Raises `StoreError` if not."""
    if name is not None and len(name) > MOST_NAME:
        raise StoreError(f"{name[:20]!r}... cannot be a name: it has {len(name):,} characters, not up to {MOST_NAME:,}")
    if name is not None and any("\ud800" <= char <= "\udfff" for char in name):
        raise StoreError(f"{name[:20]!r} cannot be a name: it is not valid UTF-8")
    return name


def checked_tags(tags: Iterable[str]) -> list[str]:
    """Return tags, sorted, each once. Raises `StoreError` for an empty, unprintable or long one."""
    words = sorted(set(tags))
    for word in words:
        if not word.strip() or not word.isprintable() or len(word) > MOST_TAG:
            shown = repr(word) if len(word) <= MOST_TAG else f"{word[:20]!r}..."
            raise StoreError(
                f"{shown} cannot be a tag: it is printable, not empty, and has up to {MOST_TAG} characters"
            )
    return words


def meta_text(meta: Mapping[str, Any]) -> str:
    """Return meta as JSON text. Raises `StoreError` if it is longer or nested deeper than `limits` allow."""
    if json_text.is_deep(meta):
        raise StoreError(f"the meta is nested deeper than {limits.MOST_DEPTH} levels")
    text = json_text.dump(meta)
    if len(text) > limits.MOST_META:
        raise StoreError(
            f"the meta has {len(text):,} characters as JSON, not up to {limits.MOST_META:,}: "
            "keep large data in a file, and its name in meta"
        )
    return text

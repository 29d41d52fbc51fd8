"""Filters on the content of events: what was said, and fields of payloads."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import StoreError
from ..json_path import compiled, parse, values_at
from ..json_text import read, written
from .event import Event
from .payload_condition import PayloadCondition
from .text import MAX_TEXT, normalised, storable

Skipped = Callable[[Event], None]


class ContentFilter:
    """The conditions of a `Selection` on the content of events. Redacted events fulfil none."""

    def __init__(self, grep: Sequence[str], regex: bool, where: Sequence[str], text: str | None) -> None:
        self.words: list[str] = [] if regex else [normalised(storable(word)) for word in grep]
        """Folded texts of which an event must contain one."""
        if "" in grep:
            raise StoreError("there is nothing to search for: give the text that grep is to find")
        self._patterns = [_pattern(word) for word in grep] if regex else []
        self.conditions = [PayloadCondition(condition) for condition in where]
        """Those of `where`."""
        self._path = None if text is None else compiled([parse(text)])
        self.selects = bool(grep or where)
        """True if there is a condition; False if only the path of the text is given."""

    @property
    def has_path(self) -> bool:
        """True if the text of an event is that at a path."""
        return self._path is not None

    @property
    def preselects(self) -> bool:
        """True if `words` are searched in the decoded text: the projection can tell events that are not selected."""
        return bool(self.words) and self._path is None

    @property
    def in_sql(self) -> bool:
        """True if `words` are the only condition: a search in the folded text finds exactly the events."""
        return self.preselects and not self.conditions

    def text(self, entry: Event) -> str | None:
        """Return what was said in an event: the decoded text, or the values at the path; None if there is none."""
        if self._path is None:
            return entry.text
        value = decoded(entry.payload, read)
        if value is NOT_JSON:
            return None
        texts = [found if isinstance(found, str) else written(found) for found in values_at(value, self._path)]
        return "\n".join(texts) if texts else None

    def takes(self, entry: Event, skipped: Skipped | None = None) -> bool:
        """Return whether an event fulfils all conditions.

        `skipped` is called with a message whose payload is not JSON, if a condition asks for a field.
        """
        if not self.selects:
            return True
        if entry.redacted:
            return False
        return self._takes_text(entry) and self._takes_fields(entry, skipped)

    def _takes_fields(self, entry: Event, skipped: Skipped | None) -> bool:
        if not self.conditions:
            return True
        value = decoded(entry.payload)
        if value is not NOT_JSON:
            try:
                return all(condition.takes(value) for condition in self.conditions)
            except RecursionError:
                pass
        if skipped is not None and entry.channel is not None:
            skipped(entry)
        return False

    def _takes_text(self, entry: Event) -> bool:
        if not self.words and not self._patterns:
            return True
        text = self.text(entry)
        if text is None:
            return False
        if self._patterns:
            plain = unicodedata.normalize("NFKC", text)
            return any(pattern.search(plain) for pattern in self._patterns)
        folded = normalised(text[:MAX_TEXT])[:MAX_TEXT]
        return any(word in folded for word in self.words)


NOT_JSON = object()


def decoded(payload: bytes, decode: Callable[[str], Any] = json.loads) -> Any:
    """Return the JSON value of a payload, or `NOT_JSON`."""
    try:
        return decode(payload.decode())
    except (ValueError, RecursionError):
        return NOT_JSON


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        raise StoreError(f"{text!r} is not a regular expression: {error.msg}{at}") from None

"""Filters on the content of events: what was said, and fields of payloads."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, not_, select

from ..db.database import Database
from ..db.schema import event, indexed_experiment, said
from ..errors import StoreError
from ..experiments.records import Experiment
from ..json_path import compiled, parse, values_at
from ..json_text import read, written
from .event import Event
from .payload_condition import PayloadCondition
from .text import DECODER_VERSION, MAX_TEXT, normalised, storable

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
        """True if the side table `said` can tell events that are not selected."""
        return bool(self.words) and self._path is None

    def text(self, entry: Event) -> str | None:
        """Return what was said in an event: the decoded text, or the values at the path; None if there is none."""
        if self._path is None:
            return entry.text
        value = decoded(entry, read)
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
        value = decoded(entry)
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

    async def condition(self, database: Database, of: Experiment) -> list[ColumnElement[bool]]:
        """Return SQL conditions that leave out events which the side table `said` shows not to be selected.

        Events that are not in it remain, so `takes` must be asked about every event that is read.
        """
        if not self.preselects:
            return []
        async with database.reading() as connection:
            query = select(indexed_experiment.c.decoder).where(indexed_experiment.c.experiment_id == of.id)
            if (await connection.execute(query)).scalar_one_or_none() != DECODER_VERSION:
                return []
        without = [not_(database.dialect.contains(said.c.folded, word)) for word in self.words]
        return [not_(exists().where(said.c.event_id == event.c.id, and_(*without)))]


NOT_JSON = object()


def decoded(entry: Event, decode: Callable[[str], Any] = json.loads) -> Any:
    """Return the JSON value of a payload, or `NOT_JSON`."""
    try:
        return decode(entry.payload.decode())
    except (ValueError, RecursionError):
        return NOT_JSON


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        raise StoreError(f"{text!r} is not a regular expression: {error.msg}{at}") from None

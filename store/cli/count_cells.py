"""Labels and cells of the tables of counts."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from ..text import safe
from .output import size as sized
from .short_names import cut_in_middle, short_names
from .sparkline import has_blocks

if TYPE_CHECKING:
    from ..queries.counting.count import Count, Counts
    from ..queries.counting.dimensions import Dimension

TOP = 20
"""Rows of a table by default, unless they are in the order of time."""
LEAST_LABEL = 16
"""Width that the labels of rows may have at least."""
_SECOND_NS, _MINUTE_NS, _DAY_NS = 1_000_000_000, 60_000_000_000, 86_400_000_000_000


class Cells:
    """Counts as text for a terminal: numbers or bytes, in blocks or in ASCII."""

    def __init__(self, counts: Counts, *, as_bytes: bool) -> None:
        self.counts = counts
        self.as_bytes = as_bytes
        self.blocks = has_blocks()
        self.width = shutil.get_terminal_size().columns

    @property
    def most_label(self) -> int:
        """Maximum width of the labels of rows."""
        return max(self.width // 3, LEAST_LABEL)

    @property
    def title(self) -> str:
        """Title of a column of numbers."""
        return "BYTES" if self.as_bytes else self.counts.unit.upper()

    def heading(self, at: int) -> str:
        """Return the title of dimension number `at`."""
        from ..queries.counting.dimensions import Of

        dimension = self.counts.dimensions[at]
        match dimension.of:
            case Of.TIME:
                return "TIME"
            case Of.FIELD:
                return safe(dimension.name)
        return dimension.name.upper()

    def number(self, row: Count) -> int:
        return row.payload_bytes if self.as_bytes else row.messages

    def text(self, number: int) -> str:
        return sized(number) if self.as_bytes else f"{number:,}"

    def cell(self, number: int, width: int) -> str:
        """Return a number of this width; zero is a dim point."""
        if number:
            return self.text(number).rjust(width)
        return click.style(("·" if self.blocks else ".").rjust(width), dim=True)

    def cut(self, label: str, width: int) -> str:
        """Return a label of exactly this width."""
        text = cut_in_middle(label, width)
        return text if self.blocks else text.replace("…", "~")

    def labels(self, at: int, values: Sequence[Any], room: int | None = None) -> list[str]:
        """Return the labels of values of dimension number `at`: as JSON if others would read the same.

        They fit `room`, or else `most_label`.
        """
        dimension = self.counts.dimensions[at]
        texts = [label(dimension, value) for value in values]
        seen = Counter(texts)
        texts = [
            text if seen[text] == 1 else safe(json.dumps(value, ensure_ascii=False))
            for text, value in zip(texts, values, strict=True)
        ]
        short = short_names(texts, room or self.most_label)
        return [short[text] for text in texts]


def label(dimension: Dimension, value: Any) -> str:
    """Return a value as text."""
    from ..queries.counting.dimensions import Of

    if dimension.of is Of.TIME:
        return time_text(value, dimension.bucket_ns)
    if dimension.of is Of.PAIR:
        return " - ".join(safe("-" if one is None else str(one)) for one in value)
    if value is None:
        return "before all marks" if dimension.of is Of.MARK else "-"
    return safe(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def time_text(ts: int, step_ns: int) -> str:
    """Return a time with the digits that multiples of `step_ns` need."""
    from ..log.event import iso

    if step_ns % _SECOND_NS:
        zeros = len(str(step_ns)) - len(str(step_ns).rstrip("0"))
        text = iso(ts)
        return text.replace("T", " ")[: -1 - zeros] if text.endswith("Z") else text
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ts // _SECOND_NS)
    except OverflowError:
        return iso(ts)
    for unit, form in ((_DAY_NS, "%Y-%m-%d"), (_MINUTE_NS, "%Y-%m-%d %H:%M")):
        if step_ns % unit == 0:
            return f"{at:{form}}"
    return f"{at:%Y-%m-%d %H:%M:%S}"

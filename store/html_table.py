"""Records as an HTML table for notebooks. All recorded text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

from .text import plural, safe

SHOWN = 50
"""Rows that are shown."""


def html_table(records: Sequence[dict[str, Any]], caption: str = "") -> str:
    """Return a table of the first `SHOWN` records, which have the same keys; numbers are on the right.

    Without records, only the caption is returned, if there is one.
    """
    rows = "".join(f"<tr>{''.join(map(_cell, record.values()))}</tr>" for record in records[:SHOWN])
    titles = "".join(f"<th>{escape(safe(title))}</th>" for title in (records[0] if records else ()))
    left = len(records) - SHOWN
    more = f"<div><small>and {plural(left, 'more row')}</small></div>" if left > 0 else ""
    top = f"<div>{escape(safe(caption))}</div>" if caption else ""
    if caption and not records:
        return top
    return f"{top}<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"<td style='text-align:left'>{escape(safe(_text(value)))}</td>"
    return f"<td style='text-align:right'>{value:,}</td>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value.isoformat(" ", "milliseconds")[:-6] if isinstance(value, datetime) else str(value)

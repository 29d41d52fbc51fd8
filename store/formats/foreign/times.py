"""Times of other programs as ns UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from ...errors import StoreError
from ..fields import INT64, InvalidEntry
from .source import Told

_ISO = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9})\d*)?\s*(Z|[+-]\d\d(?::?\d\d)?)?", re.A)
_OFFSET = re.compile(r"([+-])(\d\d)(?::?(\d\d))?", re.A)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock:
    """Reads the times of one file. Times without a zone are of `zone`, or else of UTC, which `told` then says.

    A local time that occurs twice, when clocks are set back, is the first of the two.
    """

    def __init__(self, zone: tzinfo | None, told: Told) -> None:
        self._zone = zone
        self._told = told

    def iso(self, value: Any, field: str) -> int:
        """Return a time in ISO 8601 in ns UTC. Digits after the ninth are dropped."""
        found = _ISO.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise InvalidEntry(f"{field} {value!r:.60} is not a time such as 2026-03-01 10:30:00")
        day, clock, fraction, offset = found.groups()
        try:
            naive = datetime.fromisoformat(f"{day} {clock}")
            local = naive.replace(tzinfo=self._assumed() if offset is None else _offset(offset))
            since = local - _EPOCH
        except (ValueError, OverflowError):
            raise InvalidEntry(f"{field} {value!r} is not a time") from None
        nanoseconds = int((fraction or "").ljust(9, "0"))
        return (since // timedelta(seconds=1)) * 1_000_000_000 + nanoseconds

    def _assumed(self) -> tzinfo:
        self._told.choose("timezone", self._zone, "UTC")
        return self._zone or UTC


def seconds(value: Any, field: str) -> int:
    """Return a number of seconds since 1970, UTC, in ns. A float keeps the digits that it is written with."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidEntry(f"{field} is not a number of seconds since 1970")
    try:
        number = Decimal(str(value).strip())
        if not number.is_finite() or abs(number) * 1_000_000_000 >= INT64:
            raise InvalidEntry(f"{field} {value!r:.60} is not a number of seconds since 1970")
        return int((number * 1_000_000_000).to_integral_value())
    except InvalidOperation:
        raise InvalidEntry(f"{field} {value!r:.60} is not a number of seconds since 1970") from None


def timezone_of(name: str) -> tzinfo:
    """Return the time zone of a name (Europe/Berlin, UTC) or an offset (+08:00). Raise `StoreError`."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    if _OFFSET.fullmatch(name):
        return _offset(name)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise StoreError(
            f"unknown time zone {name!r}. Give a name such as Europe/Berlin, an offset such as +08:00, or UTC."
        ) from None


def _offset(text: str) -> tzinfo:
    found = _OFFSET.fullmatch(text)
    if found is None:  # Z
        return UTC
    sign, hours, minutes = found.groups()
    distance = timedelta(hours=int(hours), minutes=int(minutes or 0))
    return timezone(-distance if sign == "-" else distance)

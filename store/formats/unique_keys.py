"""JSON objects in which no key occurs twice.

Calling a hook for each object costs as much as parsing. A line is therefore parsed without one, and its strings are
counted: a repeated key makes the parsed object hold fewer strings than the line has. Lines for which this does not show
that every key is unique are parsed again, with the hook.
"""

from __future__ import annotations

from typing import Any

from .input_file import parse_object, scan_object


def parse_unique(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line. Raises `InvalidEntry`, also for a key that occurs twice in an object."""
    data = scan_object(line)
    if data is not None and has_unique_keys(line, data):
        return data
    return parse_object(line, _once)


def has_unique_keys(line: bytes, data: dict[str, Any]) -> bool:
    """Return whether no key occurs twice in the valid JSON object of a line, which was parsed as `data`.

    Every string of the line is in `data`, as a key or as a value, unless a key was repeated: then at least that key is
    not. A string begins and ends with a quotation mark; marks inside are escaped.
    """
    plain = line.replace(b"\\\\", b"") if b"\\\\" in line else line
    strings = len(data)
    for value in data.values():
        kind = value.__class__
        if kind is str:
            strings += 1
        elif kind is dict or kind is list:
            strings += _strings_in(value)
    return 2 * strings == plain.count(b'"') - plain.count(b'\\"')


def _strings_in(data: dict[str, Any] | list[Any]) -> int:
    """Return the number of strings in an object or a list, keys included."""
    found, waiting = 0, [data]
    while waiting:
        each = waiting.pop()
        items: Any = each
        if each.__class__ is dict:
            found += len(each)
            items = each.values()
        for value in items:
            kind = value.__class__
            if kind is str:
                found += 1
            elif kind is dict or kind is list:
                waiting.append(value)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of key-value pairs. Raise `ValueError` for a repeated key, which is ambiguous."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:100]!r} is there twice")
    return found

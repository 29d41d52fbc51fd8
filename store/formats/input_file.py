"""Input files, which are not trusted: lines of limited length, each a JSON object of limited size."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from .. import limits
from ..errors import BadFile
from ..json_text import is_crowded, too_long
from .fields import InvalidEntry


class InputFile:
    """The lines of a file (`-` for standard input), in order.

    While the file is open, `InvalidEntry` becomes a `BadFile` that names the last line read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self._file: Any = None
        self._number = 0

    @property
    def line_number(self) -> int:
        """Number of the last line read, from 1."""
        return self._number

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Open the file, and decompress it if it is gzip."""
        try:
            with contextlib.ExitStack() as stack:
                raw: Any = sys.stdin.buffer if self.path == "-" else stack.enter_context(open(self.path, "rb"))
                self._hashed = _Hashed(raw)
                buffered = stack.enter_context(io.BufferedReader(self._hashed, _BUFFER))
                zipped = buffered.peek(2)[:2] == b"\x1f\x8b"
                self._file = stack.enter_context(gzip.GzipFile(fileobj=buffered)) if zipped else buffered
                yield
        except InvalidEntry as error:
            raise self._bad(str(error)) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise self._bad(f"the gzip data is damaged ({error})") from None
        except OSError as error:
            raise BadFile(self.path, None, error.strerror or str(error)) from None

    def provenance(self) -> dict[str, str]:
        """Return the name of the file, without its folder, and the SHA-256 of all its bytes, as they are on disk."""
        while self._hashed.read(_BUFFER):
            pass
        return {"file": os.path.basename(self.path), "sha256": self._hashed.sha256.hexdigest()}

    def _line(self) -> bytes:
        """Return the next line with its line feed, or nothing at the end."""
        line: bytes = self._file.readline(limits.MOST_LINE + 1)
        self._number += 1
        if len(line) > limits.MOST_LINE // 4 and (reason := too_long(line)) is not None:
            raise InvalidEntry(reason)
        return line

    def _bad(self, reason: str) -> BadFile:
        return BadFile(self.path, self._number or None, reason)


_BUFFER = 256 * 1024


class _Hashed(io.RawIOBase):
    """The bytes of a file, with the SHA-256 of those that were read."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        self.sha256.update(data)
        buffer[: len(data)] = data
        return len(data)


_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def scan_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a short line in UTF-8; None if the line has to be examined otherwise.

    It is what `json.loads` returns, which detects the encoding first and matches white space around the object.
    """
    if line[:1] != b"{" or len(line) > limits.MOST_PARTS:
        return None
    try:
        text = line.decode()
        data, end = _scan(text, 0)
    except (ValueError, RecursionError, StopIteration):
        return None
    if text[end:] != "\n" and text[end:].strip(" \t\r\n"):
        return None
    found: dict[str, Any] = data
    return found


def parse_object(
    line: bytes, pairs_hook: Callable[[list[tuple[str, Any]]], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the JSON object of a line. `pairs_hook`, as in `json.loads`, may raise `ValueError`."""
    if pairs_hook is None and (found := scan_object(line)) is not None:
        return found
    if is_crowded(line):
        raise InvalidEntry(f"made of more than {limits.MOST_PARTS:,} values")
    try:
        data = json.loads(line, object_pairs_hook=pairs_hook)
    except UnicodeDecodeError:
        raise InvalidEntry("not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise InvalidEntry(f"not JSON ({error})") from None
    if not isinstance(data, dict):
        raise InvalidEntry("not a JSON object")
    return data
